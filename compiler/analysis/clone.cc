#include "compiler/analysis/clone.h"

#include "absl/container/flat_hash_map.h"

namespace xlad::compiler {

std::vector<Instruction*> Snapshot(const Computation& computation) {
  std::vector<Instruction*> list;
  list.reserve(computation.instructions().size());
  for (const auto& instruction : computation.instructions()) list.push_back(instruction.get());
  return list;
}

Instruction* CloneWithOperands(const Instruction& instruction, absl::Span<Instruction* const> operands,
                               Computation* to) {
  auto clone = instruction.CloneWithoutOperands();
  clone->set_name(instruction.name());
  return to->Add(std::move(clone), operands);
}

Instruction* InlineInto(const Computation& from, absl::Span<Instruction* const> arguments, Computation* to) {
  absl::flat_hash_map<const Instruction*, Instruction*> copies;
  for (const auto& instruction : from.instructions()) {
    if (instruction->opcode() == Opcode::kParameter) {
      copies[instruction.get()] = arguments[instruction->number()];
      continue;
    }
    std::vector<Instruction*> operands;
    for (const Instruction* operand : instruction->operands()) operands.push_back(copies.at(operand));
    Instruction* copy = CloneWithOperands(*instruction, operands, to);
    for (const Instruction* before : instruction->control_predecessors())
      copy->AddControlPredecessor(copies.at(before));
    copies[instruction.get()] = copy;
  }
  return copies.at(from.root());
}

void FinishEdits(Computation* computation) {
  computation->SortTopologically();
  computation->RemoveDead();
}

void FinishEdits(Module* module) {
  module->RemoveUnusedComputations();
  module->SortComputations();
}

}  // namespace xlad::compiler
