// Measures the plans that a group can run, for the cost model.
#pragma once

#include "base/clock.h"
#include "collectives/exec/messages/message_group.h"

namespace xlad::collectives {

// Runs the common kinds of collectives at a few sizes, with several algorithms, for about `budget_ms` at most. Fits the
// parameters to the times of the slowest rank. All ranks must call it together and get the same result. Errors are
// those of the group.
absl::StatusOr<CostModel> Calibrate(MessageGroup* group, const Clock& clock, int64_t budget_ms);

}  // namespace xlad::collectives
