#include "sharding/propagate/constraints.h"

#include <algorithm>

#include "hlo/attribute_keys.h"
#include "sharding/import/inline_calls.h"

namespace xlad::sharding {
namespace {

class ConstraintRouter {
 public:
  explicit ConstraintRouter(ShardedModule* module) : module_(*module) {}

  void Run(hlo::Computation* computation) {
    const std::vector<hlo::Instruction*> order = CanonicalOrder(*computation);
    for (size_t i = 0; i < order.size(); ++i) position_[order[i]] = i;
    for (hlo::Instruction* value : order) Route(value);
    computation->SortTopologically();
  }

 private:
  bool IsConstraint(const hlo::Instruction& instruction) const {
    return instruction.opcode() == hlo::Opcode::kCopy && module_.shardings.contains(&instruction) &&
           !module_.barriers.contains(&instruction);
  }

  bool EntersManual(const hlo::Instruction& constraint) const {
    return std::any_of(constraint.users().begin(), constraint.users().end(),
                       [](const hlo::Instruction* user) { return IsManualBorder(*user); });
  }

  // The only constraint among the users, or null if there is none or there are several.
  hlo::Instruction* OnlyConstraint(const hlo::Instruction& value) const {
    hlo::Instruction* only = nullptr;
    for (hlo::Instruction* user : value.users()) {
      if (!IsConstraint(*user)) continue;
      if (only != nullptr || EntersManual(*user)) return nullptr;
      only = user;
    }
    return only;
  }

  void Route(hlo::Instruction* value) {
    if (IsConstraint(*value)) return;
    hlo::Instruction* last = OnlyConstraint(*value);
    if (last == nullptr) return;
    while (last->users().size() == 1 && IsConstraint(*last->users()[0]) && !EntersManual(*last->users()[0])) {
      last = last->users()[0];
    }
    for (const hlo::Instruction* user : last->users()) {
      if (IsConstraint(*user)) return;
    }
    const std::vector<hlo::Instruction*> users(value->users().begin(), value->users().end());
    for (hlo::Instruction* user : users) {
      if (IsConstraint(*user) || position_.at(user) < position_.at(last)) continue;
      for (int64_t i = 0; i < user->operand_count(); ++i) {
        if (user->operand(i) == value) user->ReplaceOperand(i, last);
      }
    }
  }

  ShardedModule& module_;
  absl::flat_hash_map<const hlo::Instruction*, size_t> position_;
};

bool IsClosed(const TensorSharding& sharding) {
  return std::all_of(sharding.dims.begin(), sharding.dims.end(),
                     [](const DimensionSharding& dim) { return dim.closed && dim.priority == 0; });
}

// Whether every constraint on the value has this sharding.
bool AllAgree(const FlowGraph& graph, int value, const TensorSharding& sharding) {
  for (const int n : graph.values[value].nodes) {
    const FlowNode& node = graph.nodes[n];
    if (node.instruction->opcode() != hlo::Opcode::kCopy || node.operands[0] != value) continue;
    const FlowValue& constraint = graph.values[node.results[0]];
    if (constraint.annotated && !(constraint.sharding == sharding)) return false;
  }
  return true;
}

}  // namespace

void RouteThroughConstraints(ShardedModule* module) {
  ConstraintRouter router(module);
  for (hlo::Computation* computation : FlowComputations(*module->module)) router.Run(computation);
}

void ApplyClosedConstraints(const ShardedModule& module, FlowGraph* graph) {
  for (const FlowNode& node : graph->nodes) {
    if (node.instruction->opcode() != hlo::Opcode::kCopy || node.allowed != BarrierDirection::kBoth) continue;
    const FlowValue& constraint = graph->values[node.results[0]];
    FlowValue& operand = graph->values[node.operands[0]];
    if (!constraint.annotated || !IsClosed(constraint.sharding) || operand.annotated || operand.flow_target) continue;
    if (!AllAgree(*graph, node.operands[0], constraint.sharding)) continue;
    operand.sharding = constraint.sharding;
    const std::string source = module.module->SourceOf(*node.instruction);
    for (DimensionSharding& dim : operand.sharding.dims) {
      for (OriginPtr& origin : dim.origins) {
        origin = std::make_shared<const Origin>(Origin{Origin::Kind::kPropagated, node.instruction->name(),
                                                       "the constraint decides its operand", source, origin});
      }
    }
  }
}

}  // namespace xlad::sharding
