// One step of propagation at a node: if some tensors are split along a factor, the others are split along it as well.
//
// This is Shardy's aggressive strategy. Each factor is assigned the longest list of axes that no tensor of the node
// contradicts. Every tensor is then split by as many axes of that list as possible. If several factors compete for an
// axis in a tensor, the factor whose source is the largest tensor gets it. Example with mesh "a=2,b=2":
//
//   dot ([i, k], [k, j])->([i, j])    operand 0: [{"a"}, {?}]    operand 1: [{?}, {"b"}]    result: [{?}, {?}]
//   factor i: "a" (operand 0); factor j: "b" (operand 1)          result becomes [{"a"}, {"b"}]
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sharding/propagate/flow_graph.h"

namespace xlad::sharding {

// For one factor: the tensors of a node whose shardings are propagated (from), and those that may change (to).
struct Direction {
  bool from_operands = false, from_results = false;
  bool to_operands = false, to_results = false;
  static Direction Both() { return {true, true, true, true}; }
  static Direction Forward() { return {true, false, false, true}; }
  static Direction Backward() { return {false, true, true, false}; }
};

struct NodeContext {
  const hlo::Module* module = nullptr;
  std::function<Direction(const FlowNode&, const Factor&)> direction;
  // Whether a value may be changed as an operand of this node.
  std::function<bool(const FlowNode&, const FlowValue&)> may_change_operand;
};

// Adds axes to the shardings of the node's values. Returns the numbers of the values that changed.
std::vector<int> PropagateAt(const NodeContext& context, const FlowNode& node, std::vector<FlowValue>* values);

}  // namespace xlad::sharding
