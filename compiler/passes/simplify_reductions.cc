// Simplify's rules for reduce and sort.
#include "compiler/passes/simplify_rules.h"

namespace xlad::compiler {
namespace {

// A reduction over dimensions of size 1 is `opcode` with two operands, the initial value and the element. If the
// initial value is the identity of `opcode`, the rules for `opcode` then remove the operation. +0 is not the identity
// of a float sum (0 + -0 is 0).
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

// A sort along a dimension of size 0 or 1 is its operand.
Instruction* SimplifySort(Instruction* sort) {
  if (sort->operand_count() != 1 || sort->operand(0)->shape().dim(sort->dimensions()[0]) > 1) return nullptr;
  return sort->operand(0);
}

}  // namespace

Instruction* SimplifyReductions(Instruction* instruction, hlo::Builder& builder) {
  switch (instruction->opcode()) {
    case Opcode::kReduce:
      return SimplifyReduce(instruction, builder);
    case Opcode::kSort:
      return SimplifySort(instruction);
    default:
      return nullptr;
  }
}

}  // namespace xlad::compiler
