// The relation of the bandwidth of a collective's algorithm to that of the links.
#pragma once

#include "collectives/plan/spec.h"

namespace xlad::collectives {

// The factor from algbw, which is the larger of the bytes of input and output over the time, to busbw, which can be
// compared with the rate of a link whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md).
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
