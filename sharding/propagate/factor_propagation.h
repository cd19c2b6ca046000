// One step of propagation at one node: from the tensors that have a factor split to those that may be split alike.
//
// This is Shardy's aggressive strategy: for each factor the longest list of axes that no tensor contradicts; of these,
// each tensor takes what it can. Where several factors want one axis in a tensor, the one whose source is the largest
// tensor gets it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sharding/propagate/flow_graph.h"

namespace xlad::sharding {

// Which tensors of a node give and which take, for one factor.
struct Direction {
  bool from_operands = false, from_results = false;
  bool to_operands = false, to_results = false;
  static Direction Both() { return {true, true, true, true}; }
  static Direction Forward() { return {true, false, false, true}; }
  static Direction Backward() { return {false, true, true, false}; }
};

struct StepContext {
  const hlo::Module* module = nullptr;
  std::function<Direction(const FlowNode&, const Factor&)> direction;
  // Whether a value may be changed as an operand of this node.
  std::function<bool(const FlowNode&, const FlowValue&)> may_change_operand;
};

// Extends the shardings of the node's values. Returns the values that changed.
std::vector<int> PropagateAt(const StepContext& context, const FlowNode& node, std::vector<FlowValue>* values);

}  // namespace xlad::sharding
