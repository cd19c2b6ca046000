// AllReduce by exchanges of halves, which the orders of exchanges of halving and doubling and of Swing share.
#pragma once

#include <vector>

#include "collectives/plan/algorithms/fold.h"

namespace xlad::collectives {

// One exchange of a rank: it keeps half `half` (0: the lower, 1: the upper) of what it has left, and sends the other
// half to member `peer` of the fold.
struct HalfExchange {
  int peer = 0;
  int half = 0;
};

// Appends the operations of one rank that reduce the elements `all` from `round` on: the rank reduces by halves in the
// order of `exchanges`, of which there are fold.levels(), and then gathers in the reverse order. A folded rank sends
// its input to the rank that represents it and receives the result.
void AllReduceByHalves(const Fold& fold, const std::vector<HalfExchange>& exchanges, Interval all, int64_t round,
                       ScheduleBuilder* builder);

// The cost of the AllReduce of `spec` by halves: 2 (m - 1) / m of the elements for the largest power of two m <= n, and
// all elements once more if ranks are folded.
AlgorithmCost CostByHalves(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives
