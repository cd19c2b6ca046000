// AllReduce by exchanges of halves. The algorithms halving_doubling and swing share this code, and differ in the order
// of the exchanges.
#pragma once

#include <vector>

#include "collectives/plan/algorithms/fold.h"

namespace xlad::collectives {

// One exchange of a rank. The rank keeps half `half` (0: the lower, 1: the upper) of its remaining interval, and sends
// the other half to member `peer` of the fold.
struct HalfExchange {
  int peer = 0;
  int half = 0;
};

// Appends the operations of one rank that all-reduce the elements `all`, starting in `round`. The rank reduces by
// halves in the order of `exchanges`, which has fold.levels() elements, and then gathers in the reverse order. A folded
// rank sends its input to the rank that represents it, and receives the result.
void AllReduceByHalves(const Fold& fold, const std::vector<HalfExchange>& exchanges, Interval all, int64_t round,
                       ScheduleBuilder* builder);

// Returns the cost of the AllReduce of `spec` by halves. If m is the number of members of the fold, a rank sends
// 2 (m - 1) / m times the elements, plus all elements once if ranks are folded.
AlgorithmCost CostByHalves(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives
