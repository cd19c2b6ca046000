// Random changes to schedules, for tests of the checker.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// Makes one random change: an operation is removed, repeated or exchanged with another one; a peer, channel, flag,
// buffer, position or size is changed; an operand or destination is removed, or two operands are exchanged. Returns
// what was changed, or "" if the schedules are the same as before.
std::string MutateSchedules(Random* random, std::vector<Schedule>* schedules);

// The result of checking random mutants of schedules.
struct MutationCounts {
  int64_t mutants = 0;
  int64_t rejected = 0;    // By CheckSchedules.
  int64_t equivalent = 0;  // Accepted, and right in every execution by Interpret.
};

// Checks `mutants` random mutants. Internal, with the change, if the checker accepts one that an execution refutes.
absl::StatusOr<MutationCounts> CheckMutants(const ScheduleSet& set, int64_t mutants, Random* random);

}  // namespace xlad::collectives
