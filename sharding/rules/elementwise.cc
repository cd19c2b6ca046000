// Op rules where a result's element depends on the same element of the operands, and random bits.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {

namespace {

// A copy of a tuple: each leaf for itself.
OpRule LeafwiseRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.result_count() != rule.operand_count()) return {};
  for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
    for (size_t d = 0; d < rule.result_dims(leaf).size(); ++d) {
      const int factor = rule.Add(rule.result_dims(leaf)[d]);
      rule.Operand(leaf, static_cast<int64_t>(d), factor);
      rule.Result(leaf, static_cast<int64_t>(d), factor);
    }
  }
  return rule.Finish();
}

}  // namespace

// Operands of other shapes than the result's (the scalars of clamp, select and map) are not mapped.
OpRule ElementwiseRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.result_count() != 1) return LeafwiseRule(instruction);
  for (size_t d = 0; d < rule.result_dims(0).size(); ++d) {
    rule.Everywhere(static_cast<int64_t>(d), FactorKind::kPassThrough);
  }
  return rule.Finish();
}

// Types of other widths add or remove a minor dimension, which the shards need whole.
OpRule BitcastConvertRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t shared = std::min<int64_t>(std::ssize(rule.operand_dims(0)),
                                           std::ssize(rule.result_dims(0)));
  for (int64_t d = 0; d < shared; ++d) {
    const int factor = rule.Add(rule.operand_dims(0)[d]);
    rule.Operand(0, d, factor);
    rule.Result(0, d, factor);
  }
  for (size_t d = shared; d < rule.result_dims(0).size(); ++d) {
    rule.Result(0, static_cast<int64_t>(d), rule.Add(rule.result_dims(0)[d], FactorKind::kNeedReplication, true));
  }
  return rule.Finish();
}

// Statistics and scales have one dimension, the feature; training and gradients reduce over all others.
OpRule BatchNormRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t feature = instruction.attributes().feature_index;
  const bool inference = instruction.opcode() == hlo::Opcode::kBatchNormInference;
  const Dims& dims = rule.operand_dims(0);
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    const bool through = d == feature || inference;
    const int factor =
        rule.Add(dims[d], through ? FactorKind::kPassThrough : FactorKind::kNeedReplication);
    for (int64_t leaf = 0; leaf < rule.operand_count(); ++leaf) {
      if (rule.operand_dims(leaf) == dims)
        rule.Operand(leaf, d, factor);
      else if (d == feature)
        rule.Operand(leaf, 0, factor);
    }
    for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
      if (rule.result_dims(leaf) == dims)
        rule.Result(leaf, d, factor);
      else if (d == feature)
        rule.Result(leaf, 0, factor);
    }
  }
  return rule.Finish();
}

// A stateful generator draws one sequence for the whole array.
OpRule RngRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (size_t d = 0; d < rule.result_dims(0).size(); ++d) {
    rule.Result(0, static_cast<int64_t>(d), rule.Add(rule.result_dims(0)[d], FactorKind::kNeedReplication, true));
  }
  return rule.Finish();
}

// (state) -> (state, bits): bits are a function of the state and the element's index, so they can be split.
OpRule RngBitGeneratorRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t states = rule.result_count() - 1;
  for (int64_t leaf = 0; leaf < states; ++leaf) {
    for (size_t d = 0; d < rule.result_dims(leaf).size(); ++d) {
      const int factor = rule.Add(rule.result_dims(leaf)[d], FactorKind::kNeedReplication, true);
      rule.Result(leaf, static_cast<int64_t>(d), factor);
      if (rule.operand_dims(0) == rule.result_dims(leaf)) rule.Operand(0, static_cast<int64_t>(d), factor);
    }
  }
  return rule.Finish(FactorKind::kPassThrough);
}

}  // namespace xlad::sharding
