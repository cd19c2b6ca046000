// What a sharding constraint means for the value that it constrains and for that value's other users.
#pragma once

#include "sharding/model/sharded_module.h"
#include "sharding/propagate/flow_graph.h"

namespace xlad::sharding {

// Where a value goes through one chain of constraints, its later users (in canonical order) take the last constraint's
// result instead: the user constrained the value, not one of its uses. After Shardy's apply-sharding-constraints.
void RouteThroughConstraints(ShardedModule* module);

// A constraint with nothing left open decides its operand too, where nothing else does.
void ApplyClosedConstraints(const ShardedModule& module, FlowGraph* graph);

}  // namespace xlad::sharding
