// Op rules that need one dimension (or two) whole: sort, topk, fft, matrix decompositions.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {

OpRule SortRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t along = instruction.dimensions().empty() ? 0 : instruction.dimensions()[0];
  const Dims dims = rule.result_dims(0);
  // With nothing else to split, an axis on the sorted dimension would only be gathered again.
  bool alone = true;
  for (size_t d = 0; d < dims.size(); ++d) alone &= static_cast<int64_t>(d) == along || dims[d] == 1;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    rule.Everywhere(d, d == along ? FactorKind::kNeedReplication : FactorKind::kPassThrough, d == along && alone);
  }
  return rule.Finish();
}

// (values, indices) of the k largest along the last dimension.
OpRule TopkRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t last = std::ssize(rule.operand_dims(0)) - 1;
  for (int64_t d = 0; d < last; ++d) rule.Everywhere(d, FactorKind::kPassThrough);
  rule.Operand(0, last, rule.Add(rule.operand_dims(0).back(), FactorKind::kNeedReplication, true));
  const int chosen = rule.Add(rule.result_dims(0).back(), FactorKind::kNeedReplication, true);
  for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) rule.Result(leaf, last, chosen);
  return rule.Finish();
}

// Transforms the last dimensions, as many as fft_length has; RFFT and IRFFT change the size of the last one.
OpRule FftRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const Dims from = rule.operand_dims(0), to = rule.result_dims(0);
  const size_t whole = instruction.attributes().fft_length.size();
  for (size_t d = 0; d < from.size(); ++d) {
    const bool transformed = d + whole >= from.size();
    const int factor =
        rule.Add(std::max(from[d], to[d]), transformed ? FactorKind::kNeedReplication : FactorKind::kPassThrough,
                 transformed && from[d] != to[d]);
    rule.Operand(0, static_cast<int64_t>(d), factor);
    rule.Result(0, static_cast<int64_t>(d), factor);
  }
  return rule.Finish();
}

// Batches of matrices: the last two dimensions must be whole. In triangular-solve the columns of the right-hand
// side (its rows where the unknown is on the left of the matrix) are independent.
OpRule MatrixRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t ndim = std::ssize(rule.result_dims(0));
  for (int64_t d = 0; d + 2 < ndim; ++d) rule.Everywhere(d, FactorKind::kPassThrough);
  if (instruction.opcode() != hlo::Opcode::kTriangularSolve || ndim < 2) return rule.Finish();
  const int64_t free = instruction.attributes().left_side ? ndim - 1 : ndim - 2;
  const int factor = rule.Add(rule.result_dims(0)[free]);
  rule.Operand(1, free, factor);
  rule.Result(0, free, factor);
  return rule.Finish();
}

}  // namespace xlad::sharding
