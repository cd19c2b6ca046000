#include "compiler/analysis/instruction_facts.h"

#include "base/status.h"

namespace xlad::compiler {

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
