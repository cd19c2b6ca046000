#include "compiler/analysis/clone.h"

#include "absl/container/flat_hash_map.h"
#include "hlo/build/builder.h"

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
    copies[instruction.get()] = CloneWithOperands(*instruction, operands, to);
  }
  return copies.at(from.root());
}

Instruction* AddFusedParameter(Instruction* outside, Computation* fused, std::vector<Instruction*>* operands) {
  auto parameter = std::make_unique<Instruction>(Opcode::kParameter, outside->shape());
  parameter->set_number(std::ssize(*operands));
  parameter->set_name("param");
  operands->push_back(outside);
  return fused->Add(std::move(parameter));
}

std::unique_ptr<Instruction> MakeFusion(Computation* fused, absl::Span<Instruction* const> roots,
                                        absl::string_view name, absl::string_view kind, const Instruction& like) {
  std::vector<Shape> shapes;
  for (const Instruction* root : roots) shapes.push_back(root->shape());
  const bool single = roots.size() == 1;
  fused->set_root(single ? roots[0] : hlo::Builder(fused).Tuple(roots));
  auto fusion = std::make_unique<Instruction>(Opcode::kFusion, single ? shapes[0] : Shape::Tuple(std::move(shapes)));
  fusion->set_name(std::string(name));
  fusion->mutable_attributes().fusion_kind = std::string(kind);
  fusion->mutable_called() = {fused};
  fusion->mutable_metadata() = like.metadata();
  return fusion;
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
