// Checks every algorithm with its default parameters: one plan for each collective that it runs and each number of
// ranks up to a limit, with all numbers of slots up to a limit, and random changes of the schedules. Reductions are
// sums of f32, and the root is the middle rank.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "collectives/plan/mutate.h"

namespace xlad::collectives {

struct CheckAllOptions {
  std::string algorithm;   // The name of the only algorithm to check. If it is empty, all are checked.
  bool canonical = false;  // Whether only collectives that reduce are checked, in the mode canonical.
  int most_ranks = 64;  // Plans are checked for 2 to this many ranks.
  int most_slots = 8;   // Each plan is checked with 1 to this many slots.
  // The random changes of schedules of at most 8 ranks that are made in total.
  int64_t mutants = 0;
  uint64_t seed = 1;
  int threads = 1;
};

struct CheckAllCounts {
  int64_t plans = 0;   // The pairs of an algorithm and a collective, for each number of ranks.
  int64_t checks = 0;  // The plans, each with each number of slots.
  // The checks that were executed. If no send of an execution waits for a slot, the executions with more slots are the
  // same, so they are not repeated.
  int64_t executions = 0;
  MutationCounts mutations;
};

// Returns the first error of CheckSchedules, CheckFormulas or CheckMutants, with the plan and the number of slots. The
// counts depend on the options except the number of threads. InvalidArgument if there is no plan to check: if there is
// no such algorithm, or if it cannot keep the canonical order.
absl::StatusOr<CheckAllCounts> CheckAllPlans(const CheckAllOptions& options);

// Calls `task` with the numbers from 0 to `count` - 1, in this order, on this many threads. After an error, calls no
// higher numbers. Returns the error of the lowest number that failed.
absl::Status RunUntilError(int64_t count, int threads, absl::FunctionRef<absl::Status(int64_t)> task);

}  // namespace xlad::collectives
