// Random changes to schedules, for tests of the checker.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// Makes one random change. The change is one of these: an operation is removed, repeated or exchanged with another
// operation; a peer, channel, flag, buffer, position or size is changed; an operand or destination is removed; two
// operands are exchanged. Returns a description of the change, or "" if the schedules are the same as before.
std::string MutateSchedules(Random* random, std::vector<Schedule>* schedules);

// The result of checking random mutants of schedules.
struct MutationCounts {
  int64_t mutants = 0;
  int64_t rejected = 0;    // The number of mutants that CheckSchedules rejected.
  int64_t equivalent = 0;  // The number of accepted mutants that are right in every execution by Interpret.
};

// Checks `mutants` random mutants. Returns Internal, with the change, if the checker accepts a mutant that an execution
// refutes.
absl::StatusOr<MutationCounts> CheckMutants(const ScheduleSet& set, int64_t mutants, Random* random);

}  // namespace xlad::collectives
