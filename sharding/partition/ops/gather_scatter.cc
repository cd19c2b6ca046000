// Gather and scatter on shards.
//
// Splits along batching dimensions, and along dimensions that every slice covers completely, need no communication. If
// the operand is split along an indexed dimension, every device reads or writes only its own rows. A gather returns
// zeros for the rows of other devices, and a scatter ignores indices outside of the shard. If updates are split along a
// dimension that they share with the indices, every device has a partial scatter.
#include <algorithm>
#include <limits>

#include "base/containers.h"
#include "sharding/partition/identity.h"
#include "sharding/partition/ops/families.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

bool Has(const DimensionFactors& factors, size_t f) { return Contains(factors, f); }

// The operand dimension that has factor f, or -1.
int64_t OperandDim(const OpRule& rule, size_t f) {
  for (int64_t d = 0; d < std::ssize(rule.operands[0]); ++d) {
    if (Has(rule.operands[0][d], f)) return d;
  }
  return -1;
}

// How an index vector addresses an operand: its component c is an index along operand dimension dims[c].
struct IndexComponents {
  const Dims& dims;
  int64_t vector_dim;  // The dimension of the indices that holds the components.
};

// One scalar for each component, broadcast to the shape of the indices.
Instruction* PerComponent(LocalBuilder& local, const IndexComponents& components, const Dims& indices,
                          const std::vector<Instruction*>& values) {
  hlo::Builder& builder = local.builder();
  if (components.vector_dim == std::ssize(indices)) {
    return builder.Full(hlo::Shape(values[0]->shape().type(), indices), values[0]);
  }
  std::vector<Instruction*> parts;
  for (Instruction* value : values) parts.push_back(builder.Reshape(value, {1}));
  Instruction* vector = parts.size() == 1 ? parts[0] : builder.Concatenate(parts, 0);
  return builder.Broadcast(vector, indices, {components.vector_dim});
}

// The type in which the indices are compared with positions in the operand: at least s32, and at least as wide as the
// positions along split dimensions need.
ElementType WideEnough(const LocalArray& operand, const IndexComponents& components, ElementType type) {
  ElementType needed = ElementType::kS32;
  for (int64_t d : components.dims) {
    const AxisList& axes = operand.sharding.dims[d].axes;
    if (IndexType(operand.global.dims[d], ShardCount(axes)) == ElementType::kS64) needed = ElementType::kS64;
  }
  return tensor::ByteWidth(type) < tensor::ByteWidth(needed) ? needed : type;
}

// One scalar of type `type` per component: the global index of the shard's first element along the component's
// dimension if `is_split` accepts that dimension, otherwise 0.
template <typename IsSplit>
std::vector<Instruction*> ShardStarts(LocalBuilder& local, const LocalArray& operand,
                                      const IndexComponents& components, ElementType type, const IsSplit& is_split) {
  std::vector<Instruction*> starts;
  for (int64_t d : components.dims) {
    const AxisList& axes = operand.sharding.dims[d].axes;
    starts.push_back(!axes.empty() && is_split(d)
                         ? local.builder().ConvertTo(type, local.ShardStart(axes, operand.local->shape().dims()[d]))
                         : local.builder().Scalar(type, 0));
  }
  return starts;
}

}  // namespace

// The rule has a reduction factor for every indexed dimension along which slices have size 1. The factor can be split
// if the index vectors have a component for the dimension.
std::vector<bool> SplitGather(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const hlo::GatherDimensions& dims = *instruction.attributes().gather;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction) continue;
    result[f] = Contains(dims.start_index_map, OperandDim(rule, f));
  }
  return result;
}

namespace {

// Indices relative to the shard, and whether each of them is inside it.
struct ShardIndices {
  Instruction* indices = nullptr;
  Instruction* inside = nullptr;  // pred, of the indices' shape without the vector dimension.
};

ShardIndices IndicesInShard(LocalBuilder& local, const LocalOp& op, const IndexComponents& components) {
  const Dims reduced = ReducedDims(op, 0);
  hlo::Builder& builder = local.builder();
  const LocalArray& operand = op.operands[0];
  const ElementType given = op.operands[1].local->shape().type();
  // Indices are clamped in a type that can hold the indices and the bounds. The clamped indices fit into a signed type.
  const ElementType clamped = WideEnough(operand, components, given);
  const ElementType type = WideEnough(operand, components, ElementType::kS32);
  Instruction* indices = local.builder().ConvertTo(clamped, op.operands[1].local);
  const Dims dims = indices->shape().dims();
  const auto is_split = [&](int64_t d) { return Contains(reduced, d); };
  std::vector<Instruction*> zeros, lasts, sizes;
  for (int64_t d : components.dims) {
    const int64_t size = operand.global.dims[d];
    zeros.push_back(builder.Scalar(clamped, 0));
    lasts.push_back(builder.Scalar(clamped, size - op.source->attributes().slice_sizes[d]));
    sizes.push_back(builder.Scalar(type, is_split(d) ? operand.local->shape().dims()[d] : size));
  }
  indices = builder.Binary(Opcode::kMaximum, indices, PerComponent(local, components, dims, zeros));
  indices = builder.Binary(Opcode::kMinimum, indices, PerComponent(local, components, dims, lasts));
  indices = local.builder().ConvertTo(type, indices);
  const std::vector<Instruction*> starts = ShardStarts(local, operand, components, type, is_split);
  indices = builder.Binary(Opcode::kSubtract, indices, PerComponent(local, components, dims, starts));
  Instruction* inside = builder.Binary(
      Opcode::kAnd, builder.Compare(hlo::Comparison::kGe, indices, builder.Zero(indices->shape())),
      builder.Compare(hlo::Comparison::kLt, indices, PerComponent(local, components, dims, sizes)));
  if (components.vector_dim < indices->shape().ndim()) {
    inside = builder.Reduce(inside, builder.Scalar(ElementType::kPred, 1), {components.vector_dim},
                            hlo::ScalarReducer(local.context().module(), Opcode::kAnd, ElementType::kPred));
  }
  return {indices, inside};
}

}  // namespace

// The result is the bitwise or of all devices' parts; see EmitDynamicSlice.
absl::Status EmitGather(LocalBuilder& local, LocalOp& op) {
  hlo::Builder& builder = local.builder();
  const hlo::GatherDimensions& dims = *op.source->attributes().gather;
  const LocalArray& operand = op.operands[0];
  std::vector<Instruction*> operands = Locals(op.operands);
  const Dims split = ReducedDims(op, 0);
  ShardIndices in_shard;
  if (!split.empty()) {
    in_shard = IndicesInShard(local, op, {dims.start_index_map, dims.index_vector_dim});
    operands[1] = in_shard.indices;
  }
  Instruction* gather = local.CloneLocal(*op.source, LocalResultShape(op), operands);
  Dims& sizes = gather->mutable_attributes().slice_sizes;
  for (int64_t d = 0; d < std::ssize(sizes); ++d) {
    // A slice of all elements takes all of the shard. (Slices have size 1 along batching dimensions.)
    const bool all = sizes[d] == operand.global.dims[d] && !Contains(split, d) &&
                     !Contains(dims.operand_batching_dims, d);
    if (all) sizes[d] = operand.local->shape().dims()[d];
  }
  if (!split.empty()) {
    Dims batch;
    for (int64_t d = 0; d < gather->shape().ndim(); ++d) {
      if (!Contains(dims.offset_dims, d)) batch.push_back(d);
    }
    Instruction* inside = builder.Broadcast(in_shard.inside, gather->shape().dims(), batch);
    gather = builder.Select(inside, gather, builder.Zero(gather->shape()));
  }
  SetResults(local, op, gather);
  return absl::OkStatus();
}

std::vector<bool> SplitScatter(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThroughAndReduced(instruction, rule);
  const hlo::ScatterDimensions& dims = *instruction.attributes().scatter;
  const size_t first_update = instruction.operand_count() / 2 + 1;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const Factor& factor = rule.factors[f];
    if (factor.kind == FactorKind::kReduction) {
      result[f] =
          result[f] && instruction.shape().is_array() && HasIdentity(factor.reduction, instruction.shape().type());
      continue;
    }
    const int64_t d = OperandDim(rule, f);
    if (d < 0 || Contains(dims.input_batching_dims, d)) continue;
    const TensorFactors& update = rule.operands[first_update];
    const bool whole_window =
        std::any_of(update.begin(), update.end(), [&](const DimensionFactors& factors) { return Has(factors, f); });
    const bool row = Contains(dims.inserted_window_dims, d) &&
                     Contains(dims.scatter_dims_to_operand_dims, d);
    // A dimension along which indices move the window must not be split: a window that is partly outside of the shard
    // would be skipped.
    const bool fixed = whole_window && !Contains(dims.scatter_dims_to_operand_dims, d);
    result[f] = result[f] && (fixed || row);
  }
  return result;
}

namespace {

// Prepares partial scatters. Only the first device of each group starts from the operand, and the others start from the
// identity, so that the operand counts once. Padding of the updates is masked.
void MakePartial(LocalBuilder& local, const LocalOp& op, std::vector<Instruction*>* operands) {
  const Dims split = ReducedDims(op, 2);
  if (split.empty()) return;
  hlo::Builder& builder = local.builder();
  const hlo::Opcode reduction = op.results[0].sharding.unreduced_reduction;
  Instruction* identity = IdentityOf(builder, reduction, op.operands[2].global.type);
  (*operands)[2] = local.MaskPadding(op.operands[2], split, identity);
  Instruction*& start = (*operands)[0];
  if (RepeatsNeutralStart(*start, reduction)) return;
  const hlo::Shape shape = start->shape();
  Instruction* first =
      builder.Full(hlo::Shape(ElementType::kPred, shape.dims()), local.IsFirst(op.results[0].sharding.unreduced));
  start = builder.Select(first, start, builder.Full(shape, identity));
}

}  // namespace

absl::Status EmitScatter(LocalBuilder& local, LocalOp& op) {
  const hlo::ScatterDimensions& dims = *op.source->attributes().scatter;
  std::vector<Instruction*> operands = Locals(op.operands);
  Instruction*& indices = operands[operands.size() / 2];
  const LocalArray& operand = op.operands[0];
  const IndexComponents components{dims.scatter_dims_to_operand_dims, dims.index_vector_dim};
  const auto is_split = [&](int64_t d) { return !operand.sharding.dims[d].axes.empty(); };
  if (std::any_of(components.dims.begin(), components.dims.end(), is_split)) {
    // An index outside of the shard is also outside after the subtraction, even if it wraps around. The scatter ignores
    // it.
    const ElementType type = WideEnough(operand, components, indices->shape().type());
    indices = local.builder().ConvertTo(type, indices);
    const std::vector<Instruction*> starts = ShardStarts(local, operand, components, type, is_split);
    indices = local.builder().Binary(Opcode::kSubtract, indices,
                                     PerComponent(local, components, indices->shape().dims(), starts));
  }
  if (operands.size() == 3) MakePartial(local, op, &operands);
  SetResults(local, op, local.CloneLocal(*op.source, LocalResultShape(op), operands));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
