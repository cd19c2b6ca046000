// Rules of ops that cut out, pad and overwrite parts of an array.
#include <algorithm>

#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// Adds one factor for a dimension of operand 0 and of the result. If their sizes differ, the factor has the larger one.
void AddShared(RuleBuilder* rule, int64_t d, FactorKind kind) {
  const int factor = rule->Add(std::max(rule->operand_dims(0)[d], rule->result_dims(0)[d]), kind);
  rule->Operand(0, d, factor);
  rule->Result(0, d, factor);
}

OpRule SliceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    const bool unchanged = rule.operand_dims(0)[d] == rule.result_dims(0)[d];
    AddShared(&rule, d, unchanged ? FactorKind::kPassThrough : FactorKind::kPermutation);
  }
  return rule.Finish();
}

OpRule PadRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    const bool unchanged = instruction.attributes().padding[d] == hlo::PaddingDimension{};
    AddShared(&rule, d, unchanged ? FactorKind::kPassThrough : FactorKind::kPermutation);
  }
  return rule.Finish();
}

// The start of the slice is known only at run time. If the operand is split along the sliced dimension, every device
// returns the part of the slice that is in its shard, and zeros for the rest. The result is the bitwise or of these
// parts.
OpRule DynamicSliceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    if (rule.operand_dims(0)[d] == rule.result_dims(0)[d]) {
      AddShared(&rule, d, FactorKind::kPassThrough);
      continue;
    }
    const int factor = rule.Add(rule.operand_dims(0)[d], FactorKind::kReduction, /*blocked=*/true);
    // The bitwise or is exact. A sum would change the sign of a zero and the payload of a NaN.
    rule.factor(factor).reduction = hlo::Opcode::kOr;
    rule.Operand(0, d, factor);
    rule.Result(0, d, rule.Add(rule.result_dims(0)[d], FactorKind::kNeedReplication, /*blocked=*/true));
  }
  return rule.Finish();
}

// The overwritten array keeps its sharding: every device writes the part of the update that falls into its shard. The
// update must be replicated along every dimension in which it is smaller than the array.
OpRule DynamicUpdateSliceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    const int64_t size = rule.operand_dims(0)[d], update = rule.operand_dims(1)[d];
    const int factor = rule.Add(size);
    rule.Operand(0, d, factor);
    rule.Result(0, d, factor);
    rule.Operand(1, d, update == size ? factor : rule.Add(update, FactorKind::kNeedReplication, /*blocked=*/true));
  }
  return rule.Finish();
}

constexpr RuleRow kSliceRules[] = {
    {hlo::Opcode::kSlice, SliceRule},
    {hlo::Opcode::kPad, PadRule},
    {hlo::Opcode::kDynamicSlice, DynamicSliceRule},
    {hlo::Opcode::kDynamicUpdateSlice, DynamicUpdateSliceRule},
};

}  // namespace

absl::Span<const RuleRow> SliceRules() { return kSliceRules; }

}  // namespace xlad::sharding
