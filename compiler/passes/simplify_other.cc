// Simplify's rules for reductions, tuples and control flow.
#include "compiler/passes/simplify_rules.h"

namespace xlad::compiler {
namespace {

// A reduction over dimensions of size 1 combines the initial value with each element once, in this order. The rules
// for `opcode` then remove it if the initial value is its identity; +0 is not the identity of a float sum (0 + -0 is 0).
Instruction* SimplifyReduce(Instruction* reduce, hlo::Builder& builder) {
  if (reduce->operand_count() != 2) return nullptr;
  Instruction* x = reduce->operand(0);
  if (x->shape().elements() != reduce->shape().elements()) return nullptr;
  for (int64_t d : reduce->dimensions()) {
    if (x->shape().dim(d) != 1) return nullptr;
  }
  std::optional<Opcode> opcode = hlo::ReducerOpcode(*reduce->called()[0]);
  if (!opcode.has_value()) return nullptr;
  Instruction* flat = builder.Reshape(x, reduce->shape().dims());
  return builder.Binary(*opcode, builder.Full(reduce->shape(), reduce->operand(1)), flat);
}

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

Instruction* SimplifySort(Instruction* sort) {
  if (sort->operand_count() != 1 || sort->operand(0)->shape().dim(sort->dimensions()[0]) > 1) return nullptr;
  return sort->operand(0);
}

// A conditional whose branch is known.
Instruction* SimplifyConditional(Instruction* conditional, hlo::Builder& builder) {
  int64_t selector = 0;
  if (!ConstantInteger(*conditional->operand(0), &selector)) return nullptr;
  const int64_t branches = std::ssize(conditional->called());
  const bool is_predicate = conditional->operand(0)->shape().type() == ElementType::kPred;
  int64_t branch = is_predicate ? (selector != 0 ? 0 : 1) : selector;
  if (branch < 0 || branch >= branches) branch = branches - 1;  // As HLO defines it.
  Instruction* argument = conditional->operand(branch + 1);
  return InlineInto(*conditional->called()[branch], {argument}, builder.computation());
}

}  // namespace

Instruction* SimplifyOther(Instruction* instruction, hlo::Builder& builder) {
  switch (instruction->opcode()) {
    case Opcode::kReduce:
      return SimplifyReduce(instruction, builder);
    case Opcode::kGetTupleElement:
      return SimplifyGetTupleElement(instruction);
    case Opcode::kTuple:
      return instruction == instruction->parent()->root() ? nullptr : SimplifyTuple(instruction);
    case Opcode::kSort:
      return SimplifySort(instruction);
    case Opcode::kConditional:
      return SimplifyConditional(instruction, builder);
    default:
      return nullptr;
  }
}

}  // namespace xlad::compiler
