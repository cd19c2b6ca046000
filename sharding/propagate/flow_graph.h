// The input of propagation, a graph of the program. Its values are sets of arrays that share one sharding. Its nodes
// are ops and data flow, which relate the dimensions of values by factors. Propagation uses only this graph and not the
// opcodes.
//
// Arrays that must have equal shardings are one value. They are found with union-find over the array leaves ("slots")
// of all instructions. Examples are elements of tuples, parameters of loop bodies and branches, sharding groups, and a
// result with the parameter that it feeds. Example:
//
//   body { s = (f32[8], f32[8]) parameter(0)  v = f32[8] get-tuple-element(s), index=0
//          u = f32[8] get-tuple-element(s), index=1  w = f32[8] add(v, u)  ROOT r = (f32[8], f32[8]) tuple(w, u) }
//   ENTRY main { a = f32[8] parameter(0)  b = f32[8] parameter(1)  t = (f32[8], f32[8]) tuple(a, b)
//                ROOT l = (f32[8], f32[8]) while(t), condition=condition, body=body }
//
//   value 0: a, t.0             value 1: b, t.1
//   value 2: l.0, s.0, v        value 3: l.1, s.1, u, r.1       value 4: w, r.0       values 5, 6: the results
//   node add:    ([i], [i])->([i])   operands 2, 3   result 4
//   node while:  ([i], [i])->([i])   operands 0, 4   result 2     (the initial value and the root of the body)
//   node while:  ([i], [i])->([i])   operands 1, 3   result 3
//   nodes return: ([i])->([i])       operands 2 and 3, results 5 and 6
//
// The condition's parameter belongs to values 2 and 3 as well.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

struct FlowValue {
  const Dims* dims = nullptr;  // Owned by the module.
  TensorSharding sharding;
  AxisList manual;           // The surrounding manual computation's axes. Propagation treats them as replicated.
  bool annotated = false;
  bool flow_target = false;  // The result of a loop, branch or barrier, or the parameter of a loop's body.
  int uses = 0;              // The number of node operands that are this value.
  std::vector<int> nodes;    // Indices of the nodes that have this value as operand or result, ascending.
};

struct FlowNode {
  // The kind decides in which round of op priorities a node propagates (propagate.h).
  enum class Kind {
    kThrough,      // In all rounds: elementwise ops, reshape, transpose, dynamic-update-slice, data flow.
    kForwardOnly,  // dynamic-slice: only forward in the first two rounds.
    kBroadcast,    // Not in the first two rounds, and only backward before the last round.
    kOther,        // Not in the first two rounds.
  };
  Kind kind = Kind::kOther;
  const hlo::Instruction* instruction = nullptr;  // The instruction that origins name.
  std::string what;                               // The opcode, or "return" for a result of the program.
  OpRule rule;
  std::vector<int> operands, results;  // Indices into FlowGraph::values, parallel to the rule's tensors.
  BarrierDirection allowed = BarrierDirection::kBoth;  // The directions in which shardings may cross the node.
};

class FlowGraph {
 public:
  // The graph of a module, with the annotations of `module.shardings` in its values. The order of values and nodes
  // depends only on the structure of the program, not on the order of its instructions. InvalidArgument if the members
  // of a sharding group are annotated differently or differ in their number of dimensions. `module` must outlive the
  // graph.
  static absl::StatusOr<FlowGraph> Build(const ShardedModule& module);

  std::vector<FlowValue> values;
  std::vector<FlowNode> nodes;
  std::vector<int> results;     // The value of each array leaf of the entry's results.
  std::vector<int> parameters;  // The value of each array leaf of the entry's parameters.

  // The value of an array leaf of an instruction.
  int ValueOf(const hlo::Instruction* instruction, size_t leaf) const {
    return value_of_slot_[first_slot_.at(instruction) + leaf];
  }

 private:
  friend class FlowGraphBuilder;
  absl::flat_hash_map<const hlo::Instruction*, int> first_slot_;
  std::vector<int> value_of_slot_;
};

// The instructions of a computation, operands before users, in an order that depends only on its structure: depth first
// from the parameters and the root. Instructions that the root does not need follow, ordered by name.
std::vector<hlo::Instruction*> CanonicalOrder(const hlo::Computation& computation);

}  // namespace xlad::sharding
