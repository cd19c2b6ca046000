// Random changes to schedules, for tests of the checker.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// Makes one random change: removes or repeats an operation, exchanges it with another one, changes a peer, channel,
// flag, or a region's rank, buffer, position or size, removes an operand or destination, or exchanges two operands.
// Returns a description of the change, or "" if the schedules are the same as before.
std::string MutateSchedules(Random* random, std::vector<Schedule>* schedules);

// The result of checking random mutants of schedules.
struct MutationCounts {
  int64_t mutants = 0;
  int64_t rejected = 0;    // The number of mutants that CheckSchedules rejected.
  int64_t equivalent = 0;  // The number of accepted mutants whose results were right in all executions by Interpret.
};

// Checks `mutants` random mutants. Returns Internal, with the change, if the checker accepts a mutant that an execution
// refutes.
absl::StatusOr<MutationCounts> CheckMutants(const ScheduleSet& set, int64_t mutants, Random* random);

}  // namespace xlad::collectives
