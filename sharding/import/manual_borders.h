// Splits the borders of manual computations (jax.shard_map) into one call per array.
#pragma once

#include "sharding/import/annotations.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Replaces a border call of several arrays by one call per array, and records the border's shardings in `module`:
//   GlobalToLocalShape: the in-sharding, for a copy of the operand that becomes the call's operand;
//   LocalToGlobalShape: the out-sharding, for the call's result.
// A manual axis that a border sharding does not use becomes a replicated axis of it, so that propagation does not use
// it. InvalidArgument if shapes and shardings do not fit together.
absl::Status SplitManualBorder(hlo::Instruction* border, const Annotations& annotations, ShardedModule* module);

}  // namespace xlad::sharding
