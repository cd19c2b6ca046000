// The part of `xlad bench --shrink` that the surviving ranks run after an error.
#pragma once

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "collectives/plan/spec.h"

namespace xlad::cli {

// Called after `group` has failed at `failed_ns`. Forms a group of the ranks that are alive, counts them with an
// all-reduce, and prints the time since the failure. `Group` has a function Shrink.
template <typename Group>
absl::Status FinishInNewGroup(Group* group, int64_t failed_ns) {
  XLAD_ASSIGN_OR_RETURN(const auto left, group->Shrink());
  collectives::CollectiveSpec spec;
  spec.reduction = collectives::Reduction::kSum;
  spec.type = tensor::ElementType::kS64;
  spec.counts = {1};
  spec.ranks = left->ranks();
  XLAD_ASSIGN_OR_RETURN(const auto count, left->Prepare(spec));
  const int64_t one = 1;
  int64_t all = 0;
  XLAD_RETURN_IF_ERROR(left->Run(*count, &one, &all));
  if (all != left->ranks()) {
    return absl::InternalError(absl::StrCat("found a sum of ", all, ", expected ", left->ranks()));
  }
  std::printf("# rank %d is rank %d of %d: all_reduce finished %.1f ms after the error\n", group->rank(), left->rank(),
              left->ranks(), static_cast<double>(RealClock().NowNs() - failed_ns) / kNsPerMs);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace xlad::cli
