// One copy of a constant tree for each user before propagation, one for each sharding after it.
#include "sharding/propagate/constants.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "sharding/import/inline_calls.h"
#include "sharding/propagate/flow_graph.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Larger trees are computed once and resharded like any other value.
constexpr int64_t kMaxTree = 64;

class Splitter {
 public:
  explicit Splitter(ShardedModule* module) : module_(*module) {}

  CloneMap Run() {
    for (hlo::Computation* computation : FlowComputations(*module_.module)) {
      const std::vector<Instruction*> order = CanonicalOrder(*computation);
      for (const Instruction* instruction : order) Classify(*instruction);
      for (Instruction* user : order) {
        if (!IsConstant(user)) GiveOwn(user);
      }
      // A constant that is returned as it is has no user to own it, and needs none.
      computation->SortTopologically();
    }
    return std::move(clones_);
  }

 private:
  bool IsConstant(const Instruction* instruction) const { return tree_size_.contains(instruction); }

  void Classify(const Instruction& instruction) {
    if (!instruction.shape().is_array() || instruction.shape().ndim() == 0) return;
    if (module_.shardings.contains(&instruction)) return;  // Annotated: one value.
    int64_t size = 1;
    const bool source = instruction.opcode() == Opcode::kConstant || instruction.opcode() == Opcode::kIota;
    if (!source) {
      const bool through = hlo::IsElementwise(instruction.opcode()) || instruction.opcode() == Opcode::kBroadcast ||
                           instruction.opcode() == Opcode::kReshape;
      if (!through) return;
      for (const Instruction* operand : instruction.operands()) {
        const bool scalar = operand->shape().is_scalar();
        if (!scalar && !IsConstant(operand)) return;
        size += scalar ? 0 : tree_size_.at(operand);
      }
    }
    if (size <= kMaxTree) tree_size_[&instruction] = size;
  }

  void GiveOwn(Instruction* user) {
    absl::flat_hash_map<const Instruction*, Instruction*> own;  // What stands for each original at this user.
    for (int64_t i = 0; i < user->operand_count(); ++i) {
      Instruction* operand = user->operand(i);
      if (!IsConstant(operand)) continue;
      // The elements of a tuple, or of what a branch gets, have nothing to do with each other.
      if (user->opcode() == Opcode::kTuple || user->opcode() == Opcode::kConditional) own.clear();
      Instruction* mine = Own(operand, user, &own);
      if (mine != operand) user->ReplaceOperand(i, mine);
    }
  }

  // The original where nobody has it yet, else a clone over own operands.
  Instruction* Own(Instruction* original, const Instruction* user,
                   absl::flat_hash_map<const Instruction*, Instruction*>* own) {
    const auto known = own->find(original);
    if (known != own->end()) return known->second;
    std::vector<Instruction*> operands;
    const bool first = owner_.emplace(original, user).second;
    for (int64_t i = 0; i < original->operand_count(); ++i) {
      Instruction* operand = original->operand(i);
      if (IsConstant(operand)) operand = Own(operand, user, own);
      operands.push_back(operand);
      if (first && operand != original->operand(i)) original->ReplaceOperand(i, operand);
    }
    Instruction* result = original;
    if (!first) {
      std::unique_ptr<Instruction> clone = original->CloneWithoutOperands();
      clone->set_name(original->name());
      result = original->parent()->Add(std::move(clone), operands);
      clones_[result] = original;
    }
    (*own)[original] = result;
    return result;
  }

  ShardedModule& module_;
  absl::flat_hash_map<const Instruction*, int64_t> tree_size_;
  absl::flat_hash_map<const Instruction*, const Instruction*> owner_;
  CloneMap clones_;
};

}  // namespace

CloneMap SplitConstants(ShardedModule* module) { return Splitter(module).Run(); }

void MergeConstants(ShardedModule* module, const CloneMap& clones) {
  absl::flat_hash_set<const Instruction*> originals;
  for (const auto& [clone, original] : clones) originals.insert(original);
  for (hlo::Computation* computation : FlowComputations(*module->module)) {
    absl::flat_hash_map<const Instruction*, std::vector<Instruction*>> kept;  // By original.
    for (const auto& owned : computation->instructions()) {
      Instruction* instruction = owned.get();
      const auto found = clones.find(instruction);
      const Instruction* original = found == clones.end() ? instruction : found->second;
      if (!originals.contains(original)) continue;
      std::vector<Instruction*>& representatives = kept[original];
      const auto same = std::find_if(representatives.begin(), representatives.end(), [&](const Instruction* other) {
        return std::equal(other->operands().begin(), other->operands().end(), instruction->operands().begin(),
                          instruction->operands().end()) &&
               module->shardings.at(other) == module->shardings.at(instruction);
      });
      if (same == representatives.end()) {
        representatives.push_back(instruction);
      } else {
        instruction->ReplaceAllUsesWith(*same);
      }
    }
    computation->RemoveDead();
  }
  absl::flat_hash_set<const Instruction*> live;
  for (const hlo::Computation* computation : FlowComputations(*module->module)) {
    for (const auto& instruction : computation->instructions()) live.insert(instruction.get());
  }
  absl::erase_if(module->shardings, [&](const auto& entry) { return !live.contains(entry.first); });
}

}  // namespace xlad::sharding
