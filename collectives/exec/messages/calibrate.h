// Measures the plans that a group can run, for the cost model.
#pragma once

#include "base/clock.h"
#include "collectives/exec/messages/message_group.h"

namespace xlad::collectives {

// Runs the algorithms of the common kinds at a few sizes, for at most about `budget_ms`, and fits the parameters to the
// times, which are those of the slowest rank. All ranks call it together and get the same result. Errors are those of
// the group.
absl::StatusOr<CostModel> Calibrate(MessageGroup* group, const Clock& clock, int64_t budget_ms);

}  // namespace xlad::collectives
