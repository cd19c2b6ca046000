// Measures the plans that a group can run, for the cost model.
#pragma once

#include "base/clock.h"
#include "collectives/exec/messages/message_group.h"

namespace xlad::collectives {

// Measures six kinds of collectives on buffers of 1 KiB to 1 MiB, with all algorithms that apply and need no mapped
// memory, and fits the parameters to the times of the slowest rank. Begins no measurement after `budget_ms`. All ranks
// must call it together and get the same result. Errors are those of the group.
absl::StatusOr<CostModel> Calibrate(MessageGroup* group, const Clock& clock, int64_t budget_ms);

}  // namespace xlad::collectives
