// Rules of ops whose results depend on the same element of the operands, of batch normalization, and of random bits.
#include <algorithm>

#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// A copy of a tuple: every leaf has factors of its own.
OpRule LeafwiseRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.result_count() != rule.operand_count()) return {};
  for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
    for (const int64_t d : tensor::Indices(rule.result_dims(leaf))) {
      const int factor = rule.Add(rule.result_dims(leaf)[d]);
      rule.Operand(leaf, d, factor);
      rule.Result(leaf, d, factor);
    }
  }
  return rule.Finish();
}

// If the types differ in width, the array of the narrower type has an additional minor dimension, which must not be
// split.
OpRule BitcastConvertRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const Dims &from = rule.operand_dims(0), &to = rule.result_dims(0);
  const int64_t shared = std::min(std::ssize(from), std::ssize(to));
  for (int64_t d = 0; d < shared; ++d) {
    const int factor = rule.Add(from[d]);
    rule.Operand(0, d, factor);
    rule.Result(0, d, factor);
  }
  for (int64_t d = shared; d < std::ssize(to); ++d) {
    rule.Result(0, d, rule.Add(to[d], FactorKind::kNeedReplication, /*blocked=*/true));
  }
  return rule.Finish();
}

// Mean, variance, scale and offset have one dimension, the feature. Training and gradient reduce over all other
// dimensions, which must therefore be replicated. If the program has a mesh, Import replaces these two by reductions
// (expand_batch_norm.h), except ops with a sharding annotation or without elements.
OpRule BatchNormRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t feature = instruction.attributes().feature_index;
  const bool inference = instruction.opcode() == hlo::Opcode::kBatchNormInference;
  const Dims dims = rule.operand_dims(0);
  for (const int64_t d : tensor::Indices(dims)) {
    const int factor =
        rule.Add(dims[d], d == feature || inference ? FactorKind::kPassThrough : FactorKind::kNeedReplication);
    for (int64_t leaf = 0; leaf < rule.operand_count(); ++leaf) {
      if (rule.operand_dims(leaf) == dims) {
        rule.Operand(leaf, d, factor);
      } else if (d == feature) {
        rule.Operand(leaf, 0, factor);
      }
    }
    for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
      if (rule.result_dims(leaf) == dims) {
        rule.Result(leaf, d, factor);
      } else if (d == feature) {
        rule.Result(leaf, 0, factor);
      }
    }
  }
  return rule.Finish();
}

// A stateful generator draws one sequence of numbers for all elements, so no dimension may be split.
OpRule RngRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    rule.Result(0, d, rule.Add(rule.result_dims(0)[d], FactorKind::kNeedReplication, /*blocked=*/true));
  }
  return rule.Finish();
}

// (state) -> (state, bits). The bits are a function of the state and of the element's index, so they can be split.
OpRule RngBitGeneratorRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t states = rule.result_count() - 1;
  for (int64_t leaf = 0; leaf < states; ++leaf) {
    for (const int64_t d : tensor::Indices(rule.result_dims(leaf))) {
      const int factor = rule.Add(rule.result_dims(leaf)[d], FactorKind::kNeedReplication, /*blocked=*/true);
      rule.Result(leaf, d, factor);
      if (rule.operand_dims(0) == rule.result_dims(leaf)) rule.Operand(0, d, factor);
    }
  }
  return rule.Finish(FactorKind::kPassThrough);
}

}  // namespace

// Operands with fewer dimensions than the result (the scalars of clamp, select and map) have factors of their own.
OpRule ElementwiseRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.result_count() != 1) return LeafwiseRule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) rule.Everywhere(d, FactorKind::kPassThrough);
  return rule.Finish();
}

namespace {

// Opcodes that are elementwise according to hlo/opcode.def need no row.
constexpr RuleRow kElementwiseRules[] = {
    {hlo::Opcode::kBitcastConvert, BitcastConvertRule},
    {hlo::Opcode::kCopy, ElementwiseRule},
    {hlo::Opcode::kMap, ElementwiseRule},
    {hlo::Opcode::kBatchNormTraining, BatchNormRule},
    {hlo::Opcode::kBatchNormInference, BatchNormRule},
    {hlo::Opcode::kBatchNormGrad, BatchNormRule},
    {hlo::Opcode::kRng, RngRule},
    {hlo::Opcode::kRngBitGenerator, RngBitGeneratorRule},
};

}  // namespace

absl::Span<const RuleRow> ElementwiseRules() { return kElementwiseRules; }

}  // namespace xlad::sharding
