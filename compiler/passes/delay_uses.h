// Orders instructions so that independent computation runs between a collective and its users.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Calls its second argument for every instruction on which its first argument directly depends.
using VisitInputs = std::function<void(Instruction*, const std::function<void(Instruction*)>&)>;

// Returns other orders of the instructions in `order` that are estimated to take less time, the fastest first. In all
// of them, inputs come before their users. The list is empty if there is no such order.
//
// The estimate simulates a clock. Computation takes the time that ComputeNs returns. A collective takes the time that
// TransferNs returns. It overlaps with computation, but not with other collectives, and its users wait for its end. The
// orders come from list scheduling with this clock: users of a running collective are delayed until it has ended or no
// other instruction can run. Among the instructions that can run, collectives come first. The other instructions are
// sorted by their position in `order` or, for a second order, by the length of the longest path of dependent
// instructions. As in XLA's latency-hiding scheduler, the times are estimates, here for devices on different hosts.
//
// The network is unknown, so orders are made for each of kNetworks. An order is rated by its time divided by the time
// of `order`, averaged over these networks. With a fast network alone, users would be placed soon after their
// collective. On a slow network, they would then wait although other instructions could run.
//
// Errors are those of DeviceGroups.
absl::StatusOr<std::vector<std::vector<Instruction*>>> DelayUses(const std::vector<Instruction*>& order,
                                                                 const VisitInputs& inputs, int64_t devices);

}  // namespace xlad::compiler
