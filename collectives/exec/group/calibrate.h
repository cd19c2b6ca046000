// Measures the plans that a process group can run, for the cost model.
#pragma once

#include "base/clock.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/plan/cost.h"

namespace xlad::collectives {

// Runs the plans for plain buffers of the common kinds at a few sizes, for at most about `budget_ms`, and fits the
// parameters to the times, which are those of the slowest rank. All ranks call it together and get the same result.
// Errors are those of the group.
absl::StatusOr<CostModel> Calibrate(ProcessGroup* group, const Clock& clock, int64_t budget_ms);

}  // namespace xlad::collectives
