// Orders instructions such that other computation lies between a collective and its users.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Calls its second argument for every instruction that must come before the first one.
using VisitInputs = std::function<void(Instruction*, const std::function<void(Instruction*)>&)>;

// Returns the instructions of `order` in other orders that are estimated to take less time, the fastest first. All keep
// inputs before their users. None are returned if no collective can run beside computation.
//
// The estimate is a clock: an instruction takes the time ComputeNs, a collective runs beside the others for the time
// TransferNs, one collective after the other, and its users wait for its end. The orders are made by list scheduling on
// that clock: users of a running collective are held back until it has ended or nothing else can run. Among the
// instructions that can run, collectives come first, then those that are first in `order`, or, in a second order, those
// with the longest path of dependent instructions after them. As in XLA's latency-hiding scheduler, the times are
// estimates, here for devices on different hosts.
//
// The network is unknown, so that orders are made on the clock of each of kNetworks, and the time of an order is the
// mean over these networks of its time relative to `order`. An order for a fast network alone would place users soon
// after their collective, where they wait on a slow one although other instructions could run.
//
// Errors are those of DeviceGroups.
absl::StatusOr<std::vector<std::vector<Instruction*>>> DelayUses(const std::vector<Instruction*>& order,
                                                                 const VisitInputs& inputs, int64_t devices);

}  // namespace xlad::compiler
