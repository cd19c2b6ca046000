// Sharding propagation: from the user's annotations to a sharding for every value.
#pragma once

#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// In which order annotations spread.
enum class PropagationOrder {
  kAllAtOnce,
  // Those of the state (parameters that a result feeds or shares its memory with) only when all others have: where
  // weights and batch are split over one axis, activations are split along the batch, and weights are gathered.
  kStateLast,
};
// Whether the orders may differ: an axis is annotated both on state and on other parameters or constraints, and there
// are no user priorities.
bool OrderCanMatter(const ShardedModule& imported);

// Fills `shardings` for every instruction, Shardy's hierarchy: user priorities > op priorities > aggressive >
// basic. Every axis placed carries its origin chain. On return no sharding is left undecided (open dimensions
// without axes are replicated) and a fed result has its parameter's sharding.
absl::Status Propagate(ShardedModule* module, PropagationOrder order = PropagationOrder::kAllAtOnce);

// The module with `xla.sdy.sharding` attributes for what was propagated; for `xlad opt --stage propagated`.
std::string PrintPropagated(const ShardedModule& module);

}  // namespace xlad::sharding
