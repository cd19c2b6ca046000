#include "compiler/analysis/instruction_facts.h"

#include "absl/strings/str_cat.h"

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

std::string NearestSource(const Instruction& instruction) {
  const Module& module = *instruction.parent()->parent();
  std::string source = module.SourceOf(instruction);
  if (instruction.opcode() != Opcode::kFusion) return source;
  const auto& fused = instruction.called()[0]->instructions();
  for (auto inner = fused.rbegin(); inner != fused.rend() && source.empty(); ++inner) source = module.SourceOf(**inner);
  return source;
}

}  // namespace xlad::compiler
