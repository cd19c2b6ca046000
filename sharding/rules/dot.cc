// Rules of matrix products.
#include "base/containers.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// The result's dimensions are the batch, then the free dimensions of lhs, then those of rhs.
//
// scaled-dot has two more operands, the scales of lhs and rhs. Their contracting dimensions have a different size;
// their other dimensions have the factors of the operand that they scale.
//
// The operands of ragged-dot are lhs, rhs and the sizes of the groups. The ragged dimension of lhs is cut into groups
// whose sizes are known only at run time. This dimension and the group dimension of rhs must therefore be replicated.
// There are three forms, which differ in the ragged dimension (b is the batch, g the groups):
//   free in lhs:  [b,m,k] x [g,b,k,n] -> [b,m,n]
//   contracting:  [b,m,k] x [b,k,n] -> [g,b,m,n]
//   batch:        the dimensions are those of a dot
OpRule DotRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::Attributes& attributes = instruction.attributes();
  const hlo::DotDimensions& dims = *attributes.dot;
  const Dims &ragged = attributes.ragged_dims, &group = attributes.group_dims;  // Empty for other ops.
  const auto add = [&](int64_t side, int64_t d, FactorKind kind) {
    const bool is_ragged = side == 0 && Contains(ragged, d);
    return rule.Add(rule.operand_dims(side)[d], is_ragged ? FactorKind::kNeedReplication : kind);
  };
  const auto operand = [&](int64_t side, int64_t d, int factor) {
    rule.Operand(side, d, factor);
    const int64_t scale = side + 2;
    if (instruction.opcode() != hlo::Opcode::kScaledDot || scale >= rule.operand_count()) return;
    const Dims &scale_dims = rule.operand_dims(scale), &dims_of_side = rule.operand_dims(side);
    if (scale_dims.size() == dims_of_side.size() && scale_dims[d] == dims_of_side[d]) rule.Operand(scale, d, factor);
  };
  const bool ragged_contracting =
      std::any_of(ragged.begin(), ragged.end(), [&](int64_t d) { return Contains(dims.lhs_contracting, d); });
  int64_t result = ragged_contracting ? 1 : 0;
  for (const int64_t b : tensor::Indices(dims.lhs_batch)) {
    const int factor = add(0, dims.lhs_batch[b], FactorKind::kPassThrough);
    operand(0, dims.lhs_batch[b], factor);
    operand(1, dims.rhs_batch[b], factor);
    rule.Result(0, result++, factor);
  }
  for (int64_t side = 0; side < 2; ++side) {
    const Dims& batch = side == 0 ? dims.lhs_batch : dims.rhs_batch;
    const Dims& contracting = side == 0 ? dims.lhs_contracting : dims.rhs_contracting;
    for (const int64_t d : tensor::Indices(rule.operand_dims(side))) {
      if (Contains(batch, d) || Contains(contracting, d) || (side == 1 && Contains(group, d))) continue;
      const int factor = add(side, d, FactorKind::kPassThrough);
      operand(side, d, factor);
      rule.Result(0, result++, factor);
    }
  }
  for (const int64_t c : tensor::Indices(dims.lhs_contracting)) {
    const int factor = add(0, dims.lhs_contracting[c], FactorKind::kReduction);
    operand(0, dims.lhs_contracting[c], factor);
    operand(1, dims.rhs_contracting[c], factor);
  }
  return rule.Finish();
}

constexpr RuleRow kDotRules[] = {
    {hlo::Opcode::kDot, DotRule},
    {hlo::Opcode::kRaggedDot, DotRule},
    {hlo::Opcode::kScaledDot, DotRule},
};

}  // namespace

absl::Span<const RuleRow> DotRules() { return kDotRules; }

}  // namespace xlad::sharding
