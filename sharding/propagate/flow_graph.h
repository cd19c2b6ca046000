// The program as propagation sees it: arrays that have one sharding each, and nodes (ops and data flow) that relate
// the dimensions of arrays by factors. Opcodes end here.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

struct FlowValue {
  const Dims* dims = nullptr;
  TensorSharding sharding;
  AxisList manual;  // Axes of the manual computation around it; in sharding.replicated while propagating.
  bool annotated = false;
  bool flow_target = false;  // Result of a loop, branch or barrier, or the parameter of a loop's body.
  int uses = 0;              // Operand places of nodes.
  std::vector<int> nodes;    // That it is part of, ascending.
};

struct FlowNode {
  enum class Kind {
    kThrough,      // Elementwise, reshape, transpose, dynamic update, data flow: first to propagate.
    kForwardOnly,  // Dynamic slice: forward first.
    kBroadcast,    // Backward long before forward.
    kOther,
  };
  Kind kind = Kind::kOther;
  const hlo::Instruction* instruction = nullptr;  // For origins.
  std::string what;                               // Its opcode; "return" where a result leaves the program.
  OpRule rule;
  std::vector<int> operands, results;  // Values, parallel to the rule's tensors.
  BarrierDirection allowed = BarrierDirection::kBoth;
};

class FlowGraph {
 public:
  // Values with the annotations of `module`. Feeds, groups, tuples, branch parameters and loop state that must agree
  // share a value. The order of values and nodes depends on the program's structure only, not on the order in which
  // instructions stand. InvalidArgument where members of a sharding group are annotated differently.
  static absl::StatusOr<FlowGraph> Build(const ShardedModule& module);

  std::vector<FlowValue> values;
  std::vector<FlowNode> nodes;
  std::vector<int> results;     // The value of each leaf of the entry's results.
  std::vector<int> parameters;  // And of its parameters.

  // The value of a leaf of an instruction.
  int ValueOf(const hlo::Instruction* instruction, size_t leaf) const {
    return value_of_slot_[first_slot_.at(instruction) + leaf];
  }

 private:
  friend class FlowGraphBuilder;
  absl::flat_hash_map<const hlo::Instruction*, size_t> first_slot_;
  std::vector<int> value_of_slot_;
};

// The instructions of a computation, operands before users, in an order that follows from its structure (depth first
// from the root; what the root does not need follows by name).
std::vector<hlo::Instruction*> CanonicalOrder(const hlo::Computation& computation);

}  // namespace xlad::sharding
