#include "compiler/analysis/control_edges.h"

namespace xlad::compiler {

absl::flat_hash_set<const Instruction*> OrderedByControl(const Computation& computation) {
  absl::flat_hash_set<const Instruction*> ordered;
  const auto insert = [&](const Instruction* instruction) {
    ordered.insert(instruction);
    if (instruction->opcode() == Opcode::kGetTupleElement) ordered.insert(instruction->operand(0));
  };
  for (const auto& instruction : computation.instructions()) {
    for (const Instruction* before : instruction->control_predecessors()) {
      insert(before);
      insert(instruction.get());
    }
  }
  return ordered;
}

}  // namespace xlad::compiler
