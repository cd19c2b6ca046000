#include "sharding/propagate/flow_graph.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/containers.h"
#include "hlo/analysis/leaves.h"
#include "hlo/attribute_keys.h"
#include "sharding/import/annotations.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

// Appends `start` to `order`, preceded by those of its direct and indirect operands that are not in `seen`.
void Visit(hlo::Instruction* start, absl::flat_hash_set<const hlo::Instruction*>* seen,
           std::vector<hlo::Instruction*>* order) {
  if (!seen->insert(start).second) return;
  std::vector<std::pair<hlo::Instruction*, int64_t>> stack = {{start, 0}};
  while (!stack.empty()) {
    auto& [instruction, next] = stack.back();
    if (next < instruction->operand_count()) {
      hlo::Instruction* operand = instruction->operand(next++);
      if (seen->insert(operand).second) stack.emplace_back(operand, 0);
      continue;
    }
    order->push_back(instruction);
    stack.pop_back();
  }
}

FlowNode::Kind KindOf(const hlo::Instruction& instruction) {
  switch (instruction.opcode()) {
    case hlo::Opcode::kReshape:
    case hlo::Opcode::kTranspose:
    case hlo::Opcode::kDynamicUpdateSlice:
    case hlo::Opcode::kCopy:
      return FlowNode::Kind::kThrough;
    case hlo::Opcode::kDynamicSlice:
      return FlowNode::Kind::kForwardOnly;
    case hlo::Opcode::kBroadcast:
      return FlowNode::Kind::kBroadcast;
    default:
      return hlo::IsElementwise(instruction.opcode()) ? FlowNode::Kind::kThrough : FlowNode::Kind::kOther;
  }
}

// The rule of data flow: every dimension is a factor that all tensors share.
OpRule IdentityRule(const Dims& dims, size_t operands) {
  OpRule rule;
  TensorFactors factors;
  for (int d = 0; d < std::ssize(dims); ++d) {
    rule.factors.push_back({dims[d], FactorKind::kPassThrough, false, hlo::Opcode::kAdd});
    factors.push_back({d});
  }
  rule.operands.assign(operands, factors);
  rule.results = {factors};
  return rule;
}


}  // namespace

std::vector<hlo::Instruction*> CanonicalOrder(const hlo::Computation& computation) {
  std::vector<hlo::Instruction*> order;
  absl::flat_hash_set<const hlo::Instruction*> seen;
  for (hlo::Instruction* parameter : computation.parameters()) Visit(parameter, &seen, &order);
  Visit(computation.root(), &seen, &order);
  std::vector<hlo::Instruction*> rest;
  for (const auto& instruction : computation.instructions()) {
    if (!seen.contains(instruction.get())) rest.push_back(instruction.get());
  }
  std::sort(rest.begin(), rest.end(),
            [](const hlo::Instruction* a, const hlo::Instruction* b) { return a->name() < b->name(); });
  for (hlo::Instruction* instruction : rest) Visit(instruction, &seen, &order);
  return order;
}

class FlowGraphBuilder {
 public:
  explicit FlowGraphBuilder(const ShardedModule& module) : module_(module) {}

  absl::StatusOr<FlowGraph> Run() {
    const hlo::Computation& entry = *module_.module->entry();
    Walk(entry, {});
    AddResults(*entry.root());
    for (const std::vector<const hlo::Instruction*>& group : module_.groups) {
      for (const hlo::Instruction* member : group) XLAD_RETURN_IF_ERROR(JoinGroup(*group[0], *member));
    }
    NumberValues();
    XLAD_RETURN_IF_ERROR(Annotate());
    for (int n = 0; n < std::ssize(graph_.nodes); ++n) EnterNode(n);
    return std::move(graph_);
  }

 private:
  int Slot(const hlo::Instruction* instruction, int64_t leaf) const {
    return graph_.first_slot_.at(instruction) + leaf;
  }
  int NewSlot(const Dims& dims) {
    slot_dims_.push_back(&dims);
    const int slot = std::ssize(joined_);
    joined_.push_back(slot);
    return slot;
  }
  // Union-find with path halving (Tarjan and van Leeuwen, 1984). The representative is the smallest slot of the set.
  int Find(int slot) {
    while (joined_[slot] != slot) slot = joined_[slot] = joined_[joined_[slot]];
    return slot;
  }
  void Join(int a, int b) {
    a = Find(a);
    b = Find(b);
    joined_[std::max(a, b)] = std::min(a, b);
  }
  void JoinAll(const hlo::Instruction* a, int64_t a_leaf, const hlo::Instruction* b, size_t count) {
    for (size_t i = 0; i < count; ++i) Join(Slot(a, a_leaf + i), Slot(b, i));
  }

  absl::Status JoinGroup(const hlo::Instruction& first, const hlo::Instruction& member) {
    if (!first.shape().is_array() || !member.shape().is_array() || first.shape().ndim() != member.shape().ndim()) {
      return absl::InvalidArgumentError(absl::StrCat("sharding group: found %", first.name(), " and %", member.name(),
                                                     ", expected arrays with equal numbers of dimensions"));
    }
    Join(Slot(&first, 0), Slot(&member, 0));
    return absl::OkStatus();
  }

  // `manual` are the axes of the manual computation that contains this computation.
  void Walk(const hlo::Computation& computation, const AxisList& manual) {
    for (const hlo::Instruction* instruction : CanonicalOrder(computation)) Add(instruction, manual);
  }

  void Add(const hlo::Instruction* instruction, AxisList manual) {
    AddManual(*instruction, hlo::kManualAxesKey, &manual);
    const bool enters = IsCustomCall(*instruction, hlo::kEnterManualCall);
    graph_.first_slot_[instruction] = std::ssize(joined_);
    AxisList around = manual;
    if (enters) AddManual(*instruction, hlo::kSdyManualAxesKey, &around);
    for (const hlo::Shape* leaf : ArrayLeaves(instruction->shape())) {
      const int slot = NewSlot(leaf->dims());
      if (!around.empty()) manual_slots_.emplace_back(slot, around);
    }
    switch (instruction->opcode()) {
      case hlo::Opcode::kTuple:
        return AddTuple(instruction);
      case hlo::Opcode::kGetTupleElement:
        return AddElement(instruction);
      case hlo::Opcode::kWhile:
        return AddWhile(instruction, manual);
      case hlo::Opcode::kConditional:
        return AddConditional(instruction, manual);
      case hlo::Opcode::kDomain:
      case hlo::Opcode::kAddDependency:
        return JoinAll(instruction->operand(0), 0, instruction, CountArrayLeaves(instruction->shape()));
      case hlo::Opcode::kOptBarrier:
        for (size_t i = 0; i < CountArrayLeaves(instruction->shape()); ++i) {
          AddFlow(instruction, {Slot(instruction->operand(0), i)}, Slot(instruction, i));
        }
        return;
      default:
        return AddOp(instruction);
    }
  }

  // Adds the axes that the attribute `key` names, as "dp,sp" or as Shardy's list {"dp", "sp"}.
  void AddManual(const hlo::Instruction& instruction, const char* key, AxisList* axes) const {
    const auto text = instruction.frontend_attributes().find(key);
    if (text == instruction.frontend_attributes().end()) return;
    for (int a = 0; a < std::ssize(module_.mesh.axes()); ++a) {
      const Axis& axis = module_.mesh.axes()[a];
      const AxisRef whole = module_.mesh.Whole(a);
      const std::vector<std::string> names = absl::StrSplit(text->second, absl::ByAnyChar("{}\",<> "));
      const bool named = Contains(names, axis.name);
      const bool known = Contains(*axes, whole);
      if (named && !known && axis.size > 1) axes->push_back(whole);
    }
  }

  void AddOp(const hlo::Instruction* instruction) {
    FlowNode node;
    node.rule = RuleOf(*instruction);
    if (node.rule.factors.empty() || instruction->operand_count() == 0) return;
    node.kind = KindOf(*instruction);
    node.instruction = instruction;
    node.what = std::string(hlo::ToString(instruction->opcode()));
    const auto barrier = module_.barriers.find(instruction);
    if (barrier != module_.barriers.end()) node.allowed = barrier->second;
    for (const hlo::Instruction* operand : instruction->operands()) {
      for (size_t i = 0; i < CountArrayLeaves(operand->shape()); ++i) {
        node.operands.push_back(Slot(operand, i));
      }
    }
    for (size_t i = 0; i < CountArrayLeaves(instruction->shape()); ++i) {
      node.results.push_back(Slot(instruction, i));
    }
    graph_.nodes.push_back(std::move(node));
  }

  void AddTuple(const hlo::Instruction* tuple) {
    size_t leaf = 0;
    for (const hlo::Instruction* operand : tuple->operands()) {
      const size_t count = CountArrayLeaves(operand->shape());
      JoinAll(tuple, leaf, operand, count);
      leaf += count;
    }
  }

  void AddElement(const hlo::Instruction* element) {
    size_t leaf = 0;
    const std::vector<hlo::Shape>& elements = element->operand(0)->shape().tuple();
    for (int64_t i = 0; i < element->number(); ++i) leaf += CountArrayLeaves(elements[i]);
    JoinAll(element->operand(0), leaf, element, CountArrayLeaves(element->shape()));
  }

  // The result of the loop and the parameters of its condition and body are one value. The initial value and the root
  // of the body flow into it.
  void AddWhile(const hlo::Instruction* loop, const AxisList& manual) {
    const size_t count = CountArrayLeaves(loop->shape());
    for (const hlo::Computation* called : loop->called()) {
      Walk(*called, manual);
      JoinAll(loop, 0, called->parameter(0), count);
    }
    const hlo::Instruction* body = loop->called()[1]->root();
    for (size_t i = 0; i < count; ++i) {
      AddFlow(loop, {Slot(loop->operand(0), i), Slot(body, i)}, Slot(loop, i));
    }
  }

  void AddConditional(const hlo::Instruction* conditional, const AxisList& manual) {
    for (size_t b = 0; b < conditional->called().size(); ++b) {
      const hlo::Computation* branch = conditional->called()[b];
      Walk(*branch, manual);
      const hlo::Instruction* argument = conditional->operand(b + 1);
      if (!branch->parameters().empty()) {
        JoinAll(argument, 0, branch->parameter(0), CountArrayLeaves(argument->shape()));
      }
    }
    for (size_t i = 0; i < CountArrayLeaves(conditional->shape()); ++i) {
      std::vector<int> sources;
      for (const hlo::Computation* branch : conditional->called()) sources.push_back(Slot(branch->root(), i));
      AddFlow(conditional, std::move(sources), Slot(conditional, i));
    }
  }

  void AddFlow(const hlo::Instruction* instruction, std::vector<int> sources, int target) {
    FlowNode node;
    node.kind = FlowNode::Kind::kThrough;
    node.instruction = instruction;
    node.what = std::string(hlo::ToString(instruction->opcode()));
    node.rule = IdentityRule(*slot_dims_[target], sources.size());
    node.operands = std::move(sources);
    node.results = {target};
    flow_targets_.push_back(target);
    graph_.nodes.push_back(std::move(node));
  }

  // The results of the program are values that the root flows into. A result that feeds a parameter is the same value
  // as the parameter.
  void AddResults(const hlo::Instruction& root) {
    const std::vector<const hlo::Shape*> leaves = ArrayLeaves(root.shape());
    for (size_t i = 0; i < leaves.size(); ++i) {
      result_slots_.push_back(NewSlot(leaves[i]->dims()));
      AddFlow(&root, {Slot(&root, i)}, result_slots_.back());
      flow_targets_.pop_back();
      graph_.nodes.back().what = "return";
    }
    for (const hlo::Instruction* parameter : module_.module->entry()->parameters()) {
      for (size_t i = 0; i < CountArrayLeaves(parameter->shape()); ++i) parameter_slots_.push_back(Slot(parameter, i));
    }
    for (const Feed& feed : module_.feeds) {
      Join(parameter_slots_[feed.parameter], result_slots_[feed.result]);
    }
  }

  void NumberValues() {
    graph_.value_of_slot_.assign(joined_.size(), -1);
    for (int slot = 0; slot < std::ssize(joined_); ++slot) {
      const int first = Find(slot);
      if (first == slot) {
        graph_.value_of_slot_[slot] = std::ssize(graph_.values);
        FlowValue& value = graph_.values.emplace_back();
        value.dims = slot_dims_[slot];
        value.sharding = TensorSharding::Open(std::ssize(*value.dims));
      } else {
        graph_.value_of_slot_[slot] = graph_.value_of_slot_[first];
      }
    }
    const auto number = [&](std::vector<int>* slots) {
      for (int& slot : *slots) slot = graph_.value_of_slot_[slot];
    };
    for (FlowNode& node : graph_.nodes) {
      number(&node.operands);
      number(&node.results);
    }
    for (const int slot : result_slots_) graph_.results.push_back(graph_.value_of_slot_[slot]);
    for (const int slot : parameter_slots_) graph_.parameters.push_back(graph_.value_of_slot_[slot]);
    for (const int slot : flow_targets_) {
      graph_.values[graph_.value_of_slot_[slot]].flow_target = true;
    }
  }

  // If a value has several annotations, the first one is used. Parameters are therefore read before results (which may
  // be the same value), and results before all other instructions.
  absl::Status Annotate() {
    for (const hlo::Instruction* parameter : module_.module->entry()->parameters()) AnnotateFrom(parameter);
    for (size_t i = 0; i < module_.results.size(); ++i) {
      const TensorSharding& sharding = module_.results[i];
      const bool is_open = std::all_of(sharding.dims.begin(), sharding.dims.end(),
                                            [](const auto& dim) { return dim.axes.empty() && !dim.closed; });
      if (!is_open || !sharding.replicated.empty()) SetAnnotation(graph_.results[i], sharding);
    }
    std::vector<std::pair<int, const hlo::Instruction*>> annotated;
    for (const auto& [instruction, shardings] : module_.shardings) {
      annotated.emplace_back(Slot(instruction, 0), instruction);
    }
    std::sort(annotated.begin(), annotated.end());
    for (const auto& [slot, instruction] : annotated) AnnotateFrom(instruction);
    for (const auto& [slot, manual] : manual_slots_) {
      FlowValue& value = graph_.values[graph_.value_of_slot_[slot]];
      AxisList& unusable = value.sharding.replicated;
      for (const AxisRef& axis : manual) {
        if (Contains(unusable, axis)) continue;
        unusable.push_back(axis);
        value.manual.push_back(axis);
      }
    }
    return CheckGroups();
  }

  void AnnotateFrom(const hlo::Instruction* instruction) {
    const auto found = module_.shardings.find(instruction);
    if (found == module_.shardings.end()) return;
    for (size_t leaf = 0; leaf < found->second.size(); ++leaf) {
      SetAnnotation(graph_.ValueOf(instruction, leaf), found->second[leaf]);
    }
  }

  void SetAnnotation(int value, const TensorSharding& sharding) {
    FlowValue& of = graph_.values[value];
    if (of.annotated) return;
    of.annotated = true;
    of.sharding = sharding;
  }

  absl::Status CheckGroups() const {
    for (const std::vector<const hlo::Instruction*>& group : module_.groups) {
      for (const hlo::Instruction* member : group) {
        const auto own = module_.shardings.find(member);
        if (own == module_.shardings.end()) continue;
        const TensorSharding& common = graph_.values[graph_.ValueOf(member, 0)].sharding;
        if (own->second[0] == common) continue;
        return absl::InvalidArgumentError(absl::StrCat("sharding group: found %", member->name(), " annotated ",
                                                       ToString(module_.mesh, own->second[0]),
                                                       ", expected the group's ", ToString(module_.mesh, common)));
      }
    }
    return absl::OkStatus();
  }

  void EnterNode(int n) {
    const FlowNode& node = graph_.nodes[n];
    const auto enter = [&](int v) {
      std::vector<int>& nodes = graph_.values[v].nodes;
      if (nodes.empty() || nodes.back() != n) nodes.push_back(n);
    };
    for (const int v : node.operands) {
      enter(v);
      ++graph_.values[v].uses;
    }
    for (const int v : node.results) enter(v);
  }

  const ShardedModule& module_;
  FlowGraph graph_;
  std::vector<const Dims*> slot_dims_;
  std::vector<int> joined_;  // The union-find forest: the parent of each slot.
  std::vector<int> result_slots_, parameter_slots_, flow_targets_;
  std::vector<std::pair<int, AxisList>> manual_slots_;  // Slots in manual computations, with the manual axes.
};

absl::StatusOr<FlowGraph> FlowGraph::Build(const ShardedModule& module) { return FlowGraphBuilder(module).Run(); }

}  // namespace xlad::sharding
