// Op rules that cut out, pad and overwrite parts.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

// One factor for a dimension of operand 0 and of the result that may differ in size: the larger one.
void Shared(RuleBuilder* rule, int64_t d, FactorKind kind, bool blocked = false) {
  const int64_t size =
      std::max(rule->operand_dims(0)[d], rule->result_dims(0)[d]);
  const int factor = rule->Add(size, kind, blocked);
  rule->Operand(0, d, factor);
  rule->Result(0, d, factor);
}

}  // namespace

OpRule SliceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (int64_t d = 0; d < std::ssize(rule.result_dims(0)); ++d) {
    const bool whole = rule.operand_dims(0)[d] == rule.result_dims(0)[d];
    Shared(&rule, d, whole ? FactorKind::kPassThrough : FactorKind::kPermutation);
  }
  return rule.Finish();
}

OpRule PadRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (int64_t d = 0; d < std::ssize(rule.result_dims(0)); ++d) {
    const bool same = instruction.attributes().padding[d] == hlo::PaddingDimension{};
    Shared(&rule, d, same ? FactorKind::kPassThrough : FactorKind::kPermutation);
  }
  return rule.Finish();
}

// Where a slice starts is known at run time only: every shard gives what it has of the slice, and zeros.
OpRule DynamicSliceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (int64_t d = 0; d < std::ssize(rule.result_dims(0)); ++d) {
    const bool whole = rule.operand_dims(0)[d] == rule.result_dims(0)[d];
    if (whole) {
      Shared(&rule, d, FactorKind::kPassThrough);
    } else {
      const int factor = rule.Add(rule.operand_dims(0)[d], FactorKind::kReduction, true);
      const bool truth = instruction.shape().type() == tensor::ElementType::kPred;
      rule.factor(factor).reduction = truth ? hlo::Opcode::kOr : hlo::Opcode::kAdd;
      rule.Operand(0, d, factor);
      rule.Result(0, d, rule.Add(rule.result_dims(0)[d], FactorKind::kNeedReplication, true));
    }
  }
  return rule.Finish();
}

// The overwritten array keeps its sharding (each shard writes what falls into it); the update must be whole in
// every dimension in which it is smaller.
OpRule DynamicUpdateSliceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (int64_t d = 0; d < std::ssize(rule.result_dims(0)); ++d) {
    const int64_t size = rule.operand_dims(0)[d];
    const int64_t update = rule.operand_dims(1)[d];
    const int factor = rule.Add(size);
    rule.Operand(0, d, factor);
    rule.Result(0, d, factor);
    rule.Operand(1, d, update == size ? factor : rule.Add(update, FactorKind::kNeedReplication, true));
  }
  return rule.Finish();
}

}  // namespace xlad::sharding
