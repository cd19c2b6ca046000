// The borders of manual computations (jax.shard_map) in a form that propagation and partitioning can take one array
// at a time.
#pragma once

#include "sharding/import/annotations.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

bool IsManualBorder(const hlo::Instruction& instruction);

// Replaces a border call of many arrays by one for each, and gives each its sharding:
//   GlobalToLocalShape: a copy of the operand with the in-sharding in front of the call;
//   LocalToGlobalShape: the out-sharding on the call's result.
// Where a border sharding does not use a manual axis, nothing else may use it there.
absl::Status SplitManualBorder(hlo::Instruction* border, const Annotations& annotations, ShardedModule* module);

}  // namespace xlad::sharding
