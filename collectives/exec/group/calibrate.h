// Measures the plans that a process group can run, for the cost model.
#pragma once

#include "base/clock.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/plan/cost.h"

namespace xlad::collectives {

// Runs the common kinds of collectives on unregistered buffers of a few sizes, for about `budget_ms` at most. Fits the
// parameters to the times of the slowest rank. All ranks must call it together and get the same result. Errors are
// those of the group.
absl::StatusOr<CostModel> Calibrate(ProcessGroup* group, const Clock& clock, int64_t budget_ms);

}  // namespace xlad::collectives
