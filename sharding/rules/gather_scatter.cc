// Rules of gather and scatter.
#include "base/containers.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// The result's dimensions are offset dimensions (positions in a slice of the operand) and batch dimensions (those of
// the indices). If the operand is split along an indexed dimension, the results are partial. A device returns the
// slices that start in its shard and zeros for the others, and the result is the bitwise or over the devices.
OpRule GatherRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::GatherDimensions& dims = *instruction.attributes().gather;
  const Dims& sizes = instruction.attributes().slice_sizes;
  const Dims operand = rule.operand_dims(0), indices = rule.operand_dims(1), result = rule.result_dims(0);

  int64_t index_dim = 0;
  for (const int64_t r : tensor::Indices(result)) {
    if (Contains(dims.offset_dims, r)) continue;
    if (index_dim == dims.index_vector_dim) ++index_dim;
    const int factor = rule.Add(result[r]);
    rule.Result(0, r, factor);
    rule.Operand(1, index_dim, factor);
    const std::optional<int64_t> batch = IndexOf(dims.start_indices_batching_dims, index_dim);
    if (batch.has_value()) rule.Operand(0, dims.operand_batching_dims[*batch], factor);
    ++index_dim;
  }
  if (dims.index_vector_dim < std::ssize(indices)) {
    rule.Operand(1, dims.index_vector_dim, rule.Add(indices[dims.index_vector_dim], FactorKind::kNeedReplication));
  }
  int64_t offset = 0;
  for (const int64_t d : tensor::Indices(operand)) {
    if (Contains(dims.operand_batching_dims, d)) continue;
    const bool collapsed = Contains(dims.collapsed_slice_dims, d);
    const int64_t result_dim = collapsed ? -1 : dims.offset_dims[offset++];
    if (!collapsed && sizes[d] == operand[d]) {
      const int factor = rule.Add(operand[d]);
      rule.Operand(0, d, factor);
      rule.Result(0, result_dim, factor);
    } else if (sizes[d] == 1 && operand[d] > 1) {
      const int factor = rule.Add(operand[d], FactorKind::kReduction);
      rule.factor(factor).reduction = hlo::Opcode::kOr;  // An OR of the bits, as for a dynamic slice.
      rule.Operand(0, d, factor);
    } else {
      rule.Operand(0, d, rule.Add(operand[d], FactorKind::kNeedReplication, /*blocked=*/true));
    }
  }
  return rule.Finish();
}

// scatter(operands..., indices, updates...). If the updates are split along a dimension that they share with the
// indices, the results are partial, provided that the update computation is a reduction. If the operand is split along
// an indexed dimension, a device applies the updates that fall into its shard.
OpRule ScatterRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::ScatterDimensions& dims = *instruction.attributes().scatter;
  const int64_t arrays = rule.operand_count() / 2;
  const Dims operand = rule.operand_dims(0), indices = rule.operand_dims(arrays),
             update = rule.operand_dims(arrays + 1);
  const hlo::Opcode reduction =
      instruction.called().empty() ? hlo::Opcode::kReduce : ReductionOf(*instruction.called()[0]);
  const bool combines = reduction != hlo::Opcode::kReduce;
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
  for (const int64_t u : tensor::Indices(update)) {
    if (Contains(dims.update_window_dims, u)) continue;
    if (index_dim == dims.index_vector_dim) ++index_dim;
    const std::optional<int64_t> batch = IndexOf(dims.scatter_indices_batching_dims, index_dim);
    const int factor = rule.Add(update[u], batch.has_value() ? FactorKind::kPassThrough
                                           : combines        ? FactorKind::kReduction
                                                             : FactorKind::kNeedReplication);
    rule.factor(factor).reduction = combines ? reduction : hlo::Opcode::kAdd;
    rule.Operand(arrays, index_dim, factor);
    on_update(u, factor);
    if (batch.has_value()) on_operand(dims.input_batching_dims[*batch], factor);
    ++index_dim;
  }
  if (dims.index_vector_dim < std::ssize(indices)) {
    rule.Operand(arrays, dims.index_vector_dim, rule.Add(indices[dims.index_vector_dim], FactorKind::kNeedReplication));
  }
  int64_t window = 0;
  for (const int64_t d : tensor::Indices(operand)) {
    if (Contains(dims.input_batching_dims, d)) continue;
    const int factor = rule.Add(operand[d]);
    on_operand(d, factor);
    if (Contains(dims.inserted_window_dims, d)) continue;
    const int64_t update_dim = dims.update_window_dims[window++];
    const bool covers = update[update_dim] == operand[d];
    on_update(update_dim,
              covers ? factor : rule.Add(update[update_dim], FactorKind::kNeedReplication, /*blocked=*/true));
  }
  return rule.Finish();
}

constexpr RuleRow kGatherScatterRules[] = {
    {hlo::Opcode::kGather, GatherRule},
    {hlo::Opcode::kScatter, ScatterRule},
};

}  // namespace

absl::Span<const RuleRow> GatherScatterRules() { return kGatherScatterRules; }

}  // namespace xlad::sharding
