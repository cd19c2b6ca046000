// Op rules of matrix products.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

bool Contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

int64_t At(const Dims& dims, int64_t d) { return dims[d]; }

}  // namespace

// Result dimensions: batch, then lhs free, then rhs free. The scales of scaled-dot (operands 2 and 3) have a
// contracting dimension of another size and follow in the dimensions that agree.
OpRule DotRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::DotDimensions& dims = *instruction.attributes().dot;
  const auto scale = [&](int64_t side, int64_t d, int factor) {
    const int64_t leaf = side + 2;
    if (instruction.opcode() != hlo::Opcode::kScaledDot || leaf >= rule.operand_count()) return;
    const Dims& of = rule.operand_dims(leaf);
    if (of.size() == rule.operand_dims(side).size() && At(of, d) == At(rule.operand_dims(side), d)) {
      rule.Operand(leaf, d, factor);
    }
  };
  int64_t result = 0;
  for (size_t b = 0; b < dims.lhs_batch.size(); ++b) {
    const int factor = rule.Add(At(rule.operand_dims(0), dims.lhs_batch[b]));
    rule.Operand(0, dims.lhs_batch[b], factor);
    rule.Operand(1, dims.rhs_batch[b], factor);
    scale(0, dims.lhs_batch[b], factor);
    scale(1, dims.rhs_batch[b], factor);
    rule.Result(0, result++, factor);
  }
  for (int64_t side = 0; side < 2; ++side) {
    const Dims& batch = side == 0 ? dims.lhs_batch : dims.rhs_batch;
    const Dims& contracting = side == 0 ? dims.lhs_contracting : dims.rhs_contracting;
    for (int64_t d = 0; d < std::ssize(rule.operand_dims(side)); ++d) {
      if (Contains(batch, d) || Contains(contracting, d)) continue;
      const int factor = rule.Add(At(rule.operand_dims(side), d));
      rule.Operand(side, d, factor);
      scale(side, d, factor);
      rule.Result(0, result++, factor);
    }
  }
  for (size_t c = 0; c < dims.lhs_contracting.size(); ++c) {
    const int factor = rule.Add(At(rule.operand_dims(0), dims.lhs_contracting[c]), FactorKind::kReduction);
    rule.Operand(0, dims.lhs_contracting[c], factor);
    rule.Operand(1, dims.rhs_contracting[c], factor);
    scale(0, dims.lhs_contracting[c], factor);
    scale(1, dims.rhs_contracting[c], factor);
  }
  return rule.Finish();
}

// lhs, rhs, group sizes. The ragged dimension of lhs is cut into groups of sizes known at run time, so it must be
// whole unless it is a batch dimension; the same holds for the group dimension of rhs. By where the ragged
// dimension lies: free in lhs: [b,m,k] x [g,b,k,n] -> [b,m,n]; contracting: [b,m,k] x [b,k,n] -> [g,b,m,n];
// batch: as a dot.
OpRule RaggedDotRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::Attributes& attributes = instruction.attributes();
  const hlo::DotDimensions& dims = *attributes.dot;
  const Dims &ragged = attributes.ragged_dims, &group = attributes.group_dims;
  const bool ragged_contracting =
      std::any_of(ragged.begin(), ragged.end(), [&](int64_t d) { return Contains(dims.lhs_contracting, d); });
  int64_t result = ragged_contracting ? 1 : 0;
  for (size_t b = 0; b < dims.lhs_batch.size(); ++b) {
    const bool whole = Contains(ragged, dims.lhs_batch[b]);
    const int factor = rule.Add(At(rule.operand_dims(0), dims.lhs_batch[b]),
                                whole ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
    rule.Operand(0, dims.lhs_batch[b], factor);
    rule.Operand(1, dims.rhs_batch[b], factor);
    rule.Result(0, result++, factor);
  }
  for (int64_t side = 0; side < 2; ++side) {
    const Dims& batch = side == 0 ? dims.lhs_batch : dims.rhs_batch;
    const Dims& contracting = side == 0 ? dims.lhs_contracting : dims.rhs_contracting;
    for (int64_t d = 0; d < std::ssize(rule.operand_dims(side)); ++d) {
      if (Contains(batch, d) || Contains(contracting, d) || (side == 1 && Contains(group, d))) continue;
      const bool whole = side == 0 && Contains(ragged, d);
      const int factor =
          rule.Add(At(rule.operand_dims(side), d), whole ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
      rule.Operand(side, d, factor);
      rule.Result(0, result++, factor);
    }
  }
  for (size_t c = 0; c < dims.lhs_contracting.size(); ++c) {
    const bool whole = Contains(ragged, dims.lhs_contracting[c]);
    const int factor = rule.Add(At(rule.operand_dims(0), dims.lhs_contracting[c]),
                                whole ? FactorKind::kNeedReplication : FactorKind::kReduction);
    rule.Operand(0, dims.lhs_contracting[c], factor);
    rule.Operand(1, dims.rhs_contracting[c], factor);
  }
  return rule.Finish();
}

}  // namespace xlad::sharding
