// The difference between two executables of one program whose kernels may have different code.
#pragma once

#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <string>

#include "proto/executable.pb.h"

namespace xlad {

// Returns the first difference, or an empty text if only the code of the kernels differs. Then shards that run the one
// can change to the other between two steps and keep their buffers, connections and collectives.
inline std::string FirstDifferenceBesidesCode(const Executable& now, const Executable& next) {
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  for (const int field : {Executable::kObjectCodeFieldNumber, Executable::kQuickFieldNumber}) {
    differencer.IgnoreField(Executable::descriptor()->FindFieldByNumber(field));
  }
  if (differencer.Compare(now, next)) return "";
  constexpr size_t kMaxText = 300;
  return differences.substr(0, std::min(differences.find('\n'), kMaxText));
}

}  // namespace xlad
