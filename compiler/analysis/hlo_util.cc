#include "compiler/analysis/hlo_util.h"

#include <string>

#include "absl/container/flat_hash_set.h"

namespace xlad::compiler {
namespace {

void Visit(Computation* computation, absl::flat_hash_set<Computation*>* seen, std::vector<Computation*>* order) {
  if (!seen->insert(computation).second) return;
  for (const auto& instruction : computation->instructions()) {
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (Computation* callee : instruction->called()) Visit(callee, seen, order);
  }
  order->push_back(computation);
}

}  // namespace

std::vector<Computation*> StepComputations(const Module& module) {
  absl::flat_hash_set<Computation*> seen;
  std::vector<Computation*> order;
  Visit(module.entry(), &seen, &order);
  return order;
}

std::vector<Instruction*> Snapshot(const Computation& computation) {
  std::vector<Instruction*> list;
  list.reserve(computation.instructions().size());
  for (const auto& instruction : computation.instructions()) list.push_back(instruction.get());
  return list;
}

Instruction* CloneOn(const Instruction& instruction, absl::Span<Instruction* const> operands, Computation* to) {
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
    Instruction* copy = CloneOn(*instruction, operands, to);
    for (const Instruction* before : instruction->control_predecessors())
      copy->AddControlPredecessor(copies.at(before));
    copies[instruction.get()] = copy;
  }
  return copies.at(from.root());
}

bool HasSideEffect(const Instruction& instruction) {
  if ((hlo::Flags(instruction.opcode()) & hlo::kSideEffect) != 0) return true;
  return instruction.opcode() == Opcode::kCustomCall && instruction.attributes().has_side_effect;
}

bool ContainsCollective(const Computation& computation) {
  for (const auto& instruction : computation.instructions()) {
    if (hlo::IsCollective(instruction->opcode())) return true;
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (const Computation* callee : instruction->called()) {
      if (ContainsCollective(*callee)) return true;
    }
  }
  return false;
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
