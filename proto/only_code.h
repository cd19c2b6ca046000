// Checks an executable that replaces another executable of the same program while a job runs.
#pragma once

#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/executable.pb.h"

namespace xlad {

// Returns OK if the executables differ only in the code of the kernels. Shards that run `now` can then change to `next`
// between two steps and keep their buffers, connections and collectives. Otherwise returns InvalidArgument with the
// first difference.
inline absl::Status CheckOnlyCodeDiffers(const Executable& now, const Executable& next) {
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  for (const int field : {Executable::kObjectCodeFieldNumber, Executable::kQuickFieldNumber}) {
    differencer.IgnoreField(Executable::descriptor()->FindFieldByNumber(field));
  }
  if (differencer.Compare(now, next)) return absl::OkStatus();
  constexpr size_t kMaxText = 300;
  return absl::InvalidArgumentError(absl::StrCat("executable '", next.name(), "': found another program (",
                                                 differences.substr(0, std::min(differences.find('\n'), kMaxText)),
                                                 "), expected one in which only the code of the kernels differs"));
}

}  // namespace xlad
