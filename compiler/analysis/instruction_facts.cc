#include "compiler/analysis/instruction_facts.h"

#include "base/status.h"

namespace xlad::compiler {

bool HasSideEffect(const Instruction& instruction) {
  if ((hlo::Flags(instruction.opcode()) & hlo::kSideEffect) != 0) return true;
  return instruction.opcode() == Opcode::kCustomCall && instruction.attributes().has_side_effect;
}

std::string Describe(const Instruction& instruction) {
  std::string text = absl::StrCat("%", instruction.name(), " (", hlo::ToString(instruction.opcode()), ")");
  const Computation* computation = instruction.parent();
  if (computation != nullptr && computation->parent() != nullptr) {
    std::string source = computation->parent()->SourceOf(instruction);
    if (!source.empty()) absl::StrAppend(&text, " from ", source);
  }
  return text;
}

}  // namespace xlad::compiler
