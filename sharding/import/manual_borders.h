// Splits the borders of manual computations (jax.shard_map) into one call per array. A border is the custom call
// through which the arrays enter or leave a manual computation.
#pragma once

#include "sharding/import/annotations.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Replaces a border call of several arrays by one call per array, and records the border's shardings in `module`:
//   GlobalToLocalShape: the in-sharding is recorded for a copy of the operand, which becomes the call's operand;
//   LocalToGlobalShape: the out-sharding is recorded for the call.
// If a border's sharding does not use a manual axis, this axis becomes one of its replicated axes, so that propagation
// does not use the axis. InvalidArgument if the border names no manual axes, or if shapes and shardings do not
// match.
absl::Status SplitManualBorder(hlo::Instruction* border, const Annotations& annotations, ShardedModule* module);

}  // namespace xlad::sharding
