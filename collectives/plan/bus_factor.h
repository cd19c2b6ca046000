// The ratio between the bandwidth of the links and the bandwidth of a collective's algorithm.
#pragma once

#include "collectives/plan/spec.h"

namespace xlad::collectives {

// Returns busbw divided by algbw. algbw is the number of bytes of the input or the output, whichever is larger, divided
// by the time. busbw can be compared with the bandwidth of a link for any number of ranks (nccl-tests,
// doc/PERFORMANCE.md).
inline double BusFactor(CollectiveKind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace xlad::collectives
