// The two phases of a ring, for algorithms that are made of rings.
#pragma once

#include "collectives/plan/algorithms/build.h"

namespace xlad::collectives {

// A ring of ranks: member i sends to member i + 1.
struct Ring {
  std::vector<int> members;
  int self = 0;  // Position of the rank that is built.
};

// Member i ends with the sum of everyone's part i in its output; n - 1 messages. Contributions come from the input
// (`from_input`) or from the output buffer, where parts have the same indices.
void RingReduceScatterPhase(const Ring& ring, const std::vector<Interval>& parts, bool from_input,
                            ScheduleBuilder* builder);

// Member i starts with part i in its output and ends with all parts; n - 1 messages.
void RingAllGatherPhase(const Ring& ring, const std::vector<Interval>& parts, ScheduleBuilder* builder);

}  // namespace xlad::collectives
