// Simplify's rules for tuples and conditionals.
#include "compiler/analysis/clone.h"
#include "compiler/passes/simplify_rules.h"
#include "hlo/analysis/constants.h"

namespace xlad::compiler {
namespace {

Instruction* SimplifyGetTupleElement(Instruction* get) {
  Instruction* tuple = get->operand(0);
  return tuple->opcode() == Opcode::kTuple ? tuple->operand(get->number()) : nullptr;
}

// tuple(get-tuple-element(x, 0), .., get-tuple-element(x, n-1)) is x.
Instruction* SimplifyTuple(Instruction* tuple) {
  if (tuple->operand_count() == 0) return nullptr;
  const Instruction* first = tuple->operand(0);
  if (first->opcode() != Opcode::kGetTupleElement) return nullptr;
  Instruction* source = first->operand(0);
  if (!source->shape().SameIgnoringLayout(tuple->shape())) return nullptr;
  for (int64_t i = 0; i < tuple->operand_count(); ++i) {
    const Instruction* element = tuple->operand(i);
    if (element->opcode() != Opcode::kGetTupleElement || element->number() != i || element->operand(0) != source) {
      return nullptr;
    }
  }
  return source;
}

// Inlines the branch of a conditional whose selector is a constant.
Instruction* SimplifyConditional(Instruction* conditional, hlo::Builder& builder) {
  const std::optional<int64_t> selector = hlo::ConstantInteger(*conditional->operand(0));
  if (!selector) return nullptr;
  const int64_t branches = std::ssize(conditional->called());
  const bool is_predicate = conditional->operand(0)->shape().type() == ElementType::kPred;
  int64_t branch = is_predicate ? (*selector != 0 ? 0 : 1) : *selector;
  if (branch < 0 || branch >= branches) branch = branches - 1;  // Out of range: the last branch.
  Instruction* argument = conditional->operand(branch + 1);
  return InlineInto(*conditional->called()[branch], {argument}, builder.computation());
}

}  // namespace

Instruction* SimplifyControlFlow(Instruction* instruction, hlo::Builder& builder) {
  switch (instruction->opcode()) {
    case Opcode::kGetTupleElement:
      return SimplifyGetTupleElement(instruction);
    case Opcode::kTuple:
      return instruction == instruction->parent()->root() ? nullptr : SimplifyTuple(instruction);
    case Opcode::kConditional:
      return SimplifyConditional(instruction, builder);
    default:
      return nullptr;
  }
}

}  // namespace xlad::compiler
