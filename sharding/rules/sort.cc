// Rules of ops that need some dimensions unsplit: sort, topk, fft, cholesky and triangular-solve.
#include <algorithm>

#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

OpRule SortRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t along = instruction.dimensions().empty() ? 0 : instruction.dimensions()[0];
  const Dims dims = rule.result_dims(0);
  // If no other dimension can be split, an axis that is propagated to the sorted dimension would only be all-gathered
  // again.
  bool alone = true;
  for (const int64_t d : tensor::Indices(dims)) alone = alone && (d == along || dims[d] == 1);
  for (const int64_t d : tensor::Indices(dims)) {
    rule.Everywhere(d, d == along ? FactorKind::kNeedReplication : FactorKind::kPassThrough, d == along && alone);
  }
  return rule.Finish();
}

// Transforms the last dimensions, as many as fft_length has entries. RFFT and IRFFT change the size of the last one.
OpRule FftRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const Dims from = rule.operand_dims(0), to = rule.result_dims(0);
  const int64_t first = std::ssize(from) - std::ssize(instruction.attributes().fft_length);
  for (const int64_t d : tensor::Indices(from)) {
    const bool transformed = d >= first;
    const int factor =
        rule.Add(std::max(from[d], to[d]), transformed ? FactorKind::kNeedReplication : FactorKind::kPassThrough,
                 transformed && from[d] != to[d]);
    rule.Operand(0, d, factor);
    rule.Result(0, d, factor);
  }
  return rule.Finish();
}

// Batches of matrices: the last two dimensions must not be split. The exception is a triangular-solve for x: the
// columns of b are independent in a x = b (left_side), and the rows of b in x a = b.
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

}  // namespace

// The result is (values, indices) of the k largest elements along the last dimension.
OpRule TopkRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t last = std::ssize(rule.operand_dims(0)) - 1;
  for (int64_t d = 0; d < last; ++d) rule.Everywhere(d, FactorKind::kPassThrough);
  rule.Operand(0, last, rule.Add(rule.operand_dims(0).back(), FactorKind::kNeedReplication, /*blocked=*/true));
  const int chosen = rule.Add(rule.result_dims(0).back(), FactorKind::kNeedReplication, /*blocked=*/true);
  for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) rule.Result(leaf, last, chosen);
  return rule.Finish();
}

namespace {

constexpr RuleRow kSortRules[] = {
    {hlo::Opcode::kSort, SortRule},
    {hlo::Opcode::kTopk, TopkRule},
    {hlo::Opcode::kFft, FftRule},
    {hlo::Opcode::kCholesky, MatrixRule},
    {hlo::Opcode::kTriangularSolve, MatrixRule},
};

}  // namespace

absl::Span<const RuleRow> SortRules() { return kSortRules; }

}  // namespace xlad::sharding
