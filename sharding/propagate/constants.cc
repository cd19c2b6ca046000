#include "sharding/propagate/constants.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "sharding/import/inline_calls.h"
#include "sharding/propagate/flow_graph.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// A tree with more instructions is computed once and resharded like any other value.
constexpr int64_t kMaxTreeSize = 64;

class ConstantSplitter {
 public:
  explicit ConstantSplitter(ShardedModule* module) : module_(*module) {}

  CloneMap Run() {
    for (hlo::Computation* computation : FlowComputations(*module_.module)) {
      const std::vector<Instruction*> order = CanonicalOrder(*computation);
      for (const Instruction* instruction : order) Classify(*instruction);
      for (Instruction* user : order) {
        if (!IsConstant(user)) CopyConstantOperands(user);
      }
      // A constant that is the computation's root has no user in the computation, and is not copied.
      computation->SortTopologically();
    }
    return std::move(clones_);
  }

 private:
  bool IsConstant(const Instruction* instruction) const { return tree_size_.contains(instruction); }

  // Adds the instruction to tree_size_ if it is a constant tree.
  void Classify(const Instruction& instruction) {
    if (!instruction.shape().is_array() || instruction.shape().ndim() == 0) return;
    if (module_.shardings.contains(&instruction)) return;  // Annotated values stay shared.
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
    if (size <= kMaxTreeSize) tree_size_[&instruction] = size;
  }

  void CopyConstantOperands(Instruction* user) {
    absl::flat_hash_map<const Instruction*, Instruction*> copies;  // The copies for this user, by original.
    for (int64_t i = 0; i < user->operand_count(); ++i) {
      Instruction* operand = user->operand(i);
      if (!IsConstant(operand)) continue;
      // Elements of a tuple, and operands of different branches, need not have equal shardings.
      if (user->opcode() == Opcode::kTuple || user->opcode() == Opcode::kConditional) copies.clear();
      Instruction* copy = CopyFor(operand, user, &copies);
      if (copy != operand) user->ReplaceOperand(i, copy);
    }
  }

  // The original if this is its first user; otherwise a clone whose operands are copied as well.
  Instruction* CopyFor(Instruction* original, const Instruction* user,
                       absl::flat_hash_map<const Instruction*, Instruction*>* copies) {
    const auto known = copies->find(original);
    if (known != copies->end()) return known->second;
    std::vector<Instruction*> operands;
    const bool first = used_.insert(original).second;
    for (int64_t i = 0; i < original->operand_count(); ++i) {
      Instruction* operand = original->operand(i);
      if (IsConstant(operand)) operand = CopyFor(operand, user, copies);
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
    (*copies)[original] = result;
    return result;
  }

  ShardedModule& module_;
  absl::flat_hash_map<const Instruction*, int64_t> tree_size_;  // The number of instructions of each constant tree.
  absl::flat_hash_set<const Instruction*> used_;                // Originals that a first user keeps.
  CloneMap clones_;
};

}  // namespace

CloneMap SplitConstants(ShardedModule* module) { return ConstantSplitter(module).Run(); }

void MergeConstants(ShardedModule* module, const CloneMap& clones) {
  absl::flat_hash_set<const Instruction*> originals;
  for (const auto& [clone, original] : clones) originals.insert(original);
  for (hlo::Computation* computation : FlowComputations(*module->module)) {
    absl::flat_hash_map<const Instruction*, std::vector<Instruction*>> kept;  // The remaining copies, by original.
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
