// What a sharding constraint implies for the value that it constrains and for that value's other users.
#pragma once

#include "sharding/model/sharded_module.h"
#include "sharding/propagate/flow_graph.h"

namespace xlad::sharding {

// A constraint applies to the value and not only to one of its uses. If exactly one chain of constraints starts at a
// value, the value's later users (in canonical order) therefore use the result of the chain's last constraint instead.
// Constraints on the inputs of manual computations are not followed.
//
//   x = ...; c = constraint(x); y = tanh(x)     becomes     y = tanh(c)
//
// Source: Shardy's pass apply-sharding-constraints.
void RouteThroughConstraints(ShardedModule* module);

// A constraint without open dimensions or priorities also decides the sharding of its operand. The operand must have no
// annotation and must not be a FlowValue::flow_target, and all constraints on it must agree.
void ApplyClosedConstraints(const ShardedModule& module, FlowGraph* graph);

}  // namespace xlad::sharding
