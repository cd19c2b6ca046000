// The two phases of a ring AllReduce, for algorithms that combine rings.
#pragma once

#include "collectives/plan/algorithms/build.h"

namespace xlad::collectives {

// A ring of ranks: member i sends to member i + 1.
struct Ring {
  std::vector<int> members;
  int self = 0;  // The position of the rank whose schedule is built.
};

// The reduce-scatter phase: afterwards member i has the sum of part i in its output. It sends n - 1 messages.
// Contributions are read from the input (`from_input`) or from the same elements of the output.
void RingReduceScatterPhase(const Ring& ring, const std::vector<Interval>& parts, bool from_input,
                            ScheduleBuilder* builder);

// The all-gather phase: member i has part i in its output before, and all parts afterwards. It sends n - 1 messages.
void RingAllGatherPhase(const Ring& ring, const std::vector<Interval>& parts, ScheduleBuilder* builder);

}  // namespace xlad::collectives
