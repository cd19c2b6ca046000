// Op rules of gather and scatter.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

int64_t Position(const Dims& dims, int64_t d) {
  const auto it = std::find(dims.begin(), dims.end(), d);
  return it == dims.end() ? -1 : it - dims.begin();
}

int64_t At(const Dims& dims, int64_t d) { return dims[d]; }

}  // namespace

// Result dimensions are offset dimensions (a slice of the operand) and batch dimensions (those of the indices).
// An operand split along an indexed dimension gives partial results: each shard finds what it holds, zero
// elsewhere, and the sum is whole.
OpRule GatherRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::GatherDimensions& dims = *instruction.attributes().gather;
  const Dims& sizes = instruction.attributes().slice_sizes;
  const Dims operand = rule.operand_dims(0), indices = rule.operand_dims(1), result = rule.result_dims(0);

  int64_t index_dim = 0;
  for (int64_t r = 0; r < std::ssize(result); ++r) {
    if (Position(dims.offset_dims, r) >= 0) continue;
    if (index_dim == dims.index_vector_dim) ++index_dim;
    const int factor = rule.Add(At(result, r));
    rule.Result(0, r, factor);
    rule.Operand(1, index_dim, factor);
    const int64_t batch = Position(dims.start_indices_batching_dims, index_dim);
    if (batch >= 0) rule.Operand(0, At(dims.operand_batching_dims, batch), factor);
    ++index_dim;
  }
  if (dims.index_vector_dim < std::ssize(indices)) {
    rule.Operand(1, dims.index_vector_dim, rule.Add(At(indices, dims.index_vector_dim), FactorKind::kNeedReplication));
  }
  size_t offset = 0;
  for (int64_t d = 0; d < std::ssize(operand); ++d) {
    if (Position(dims.operand_batching_dims, d) >= 0) continue;
    const bool collapsed = Position(dims.collapsed_slice_dims, d) >= 0;
    const int64_t result_dim = collapsed ? -1 : dims.offset_dims[offset++];
    if (!collapsed && At(sizes, d) == At(operand, d)) {
      const int factor = rule.Add(At(operand, d));
      rule.Operand(0, d, factor);
      rule.Result(0, result_dim, factor);
    } else if (At(sizes, d) == 1 && At(operand, d) > 1) {
      rule.Operand(0, d, rule.Add(At(operand, d), FactorKind::kReduction));
    } else {
      rule.Operand(0, d, rule.Add(At(operand, d), FactorKind::kNeedReplication, true));
    }
  }
  return rule.Finish();
}

// scatter(operands..., indices, updates...). Updates split along a dimension that chooses where to write give
// partial results; an operand split along an indexed dimension takes the updates that fall into its shard.
OpRule ScatterRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::ScatterDimensions& dims = *instruction.attributes().scatter;
  const int64_t arrays = rule.operand_count() / 2;
  const Dims operand = rule.operand_dims(0), indices = rule.operand_dims(arrays),
             update = rule.operand_dims(arrays + 1);
  const hlo::Opcode reduction =
      instruction.called().empty() ? hlo::Opcode::kReduce : ReductionOf(*instruction.called()[0]);
  const auto on_operand = [&](int64_t d, int factor) {
    for (int64_t leaf = 0; leaf < arrays; ++leaf) {
      rule.Operand(leaf, d, factor);
      rule.Result(leaf, d, factor);
    }
  };
  const auto on_update = [&](int64_t d, int factor) {
    for (int64_t leaf = arrays + 1; leaf < rule.operand_count(); ++leaf) rule.Operand(leaf, d, factor);
  };

  int64_t index_dim = 0;
  for (int64_t u = 0; u < std::ssize(update); ++u) {
    if (Position(dims.update_window_dims, u) >= 0) continue;
    if (index_dim == dims.index_vector_dim) ++index_dim;
    const int64_t batch = Position(dims.scatter_indices_batching_dims, index_dim);
    const bool combines = reduction != hlo::Opcode::kReduce;
    const int factor = rule.Add(At(update, u), batch >= 0 ? FactorKind::kPassThrough
                                               : combines ? FactorKind::kReduction
                                                          : FactorKind::kNeedReplication);
    rule.factor(factor).reduction = combines ? reduction : hlo::Opcode::kAdd;
    rule.Operand(arrays, index_dim, factor);
    on_update(u, factor);
    if (batch >= 0) on_operand(At(dims.input_batching_dims, batch), factor);
    ++index_dim;
  }
  if (dims.index_vector_dim < std::ssize(indices)) {
    rule.Operand(arrays, dims.index_vector_dim,
                 rule.Add(At(indices, dims.index_vector_dim), FactorKind::kNeedReplication));
  }
  size_t window = 0;
  for (int64_t d = 0; d < std::ssize(operand); ++d) {
    if (Position(dims.input_batching_dims, d) >= 0) continue;
    const int factor = rule.Add(At(operand, d));
    on_operand(d, factor);
    if (Position(dims.inserted_window_dims, d) >= 0) continue;
    const int64_t update_dim = dims.update_window_dims[window++];
    const bool whole = At(update, update_dim) == At(operand, d);
    on_update(update_dim, whole ? factor : rule.Add(At(update, update_dim), FactorKind::kNeedReplication, true));
  }
  return rule.Finish();
}

}  // namespace xlad::sharding
