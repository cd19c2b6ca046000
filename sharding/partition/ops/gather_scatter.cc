// Gather and scatter on shards.
//
// Batch and whole-slice dimensions are local. An operand split along an indexed dimension: every device looks at its
// own rows; a gather gives zeros for the others' (the sum is whole), a scatter skips what falls outside. Updates split
// along their index dimensions: every device has a partial scatter.
#include <algorithm>
#include <limits>

#include "sharding/partition/op_family.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

int64_t IndexOf(const Dims& dims, int64_t d) {
  const auto it = std::find(dims.begin(), dims.end(), d);
  return it == dims.end() ? -1 : it - dims.begin();
}

bool Has(const DimensionFactors& factors, size_t f) {
  return std::find(factors.begin(), factors.end(), static_cast<int>(f)) != factors.end();
}

// The operand dimension that has factor f, or -1.
int64_t OperandDim(const OpRule& rule, size_t f) {
  for (size_t d = 0; d < rule.operands[0].size(); ++d) {
    if (Has(rule.operands[0][d], f)) return static_cast<int64_t>(d);
  }
  return -1;
}

// The index components of gather and scatter: component c of an index counts along operand dimension map[c].
struct Components {
  const Dims* map;
  int64_t vector_dim;
};

// A value for each component, broadcast to the shape of the indices.
Instruction* PerComponent(Emitter& emitter, const Components& components, const hlo::Shape& indices,
                          const std::vector<Instruction*>& values) {
  hlo::Builder& builder = emitter.builder();
  if (components.vector_dim == indices.ndim()) return builder.Full(indices, values[0]);
  std::vector<Instruction*> parts;
  for (Instruction* value : values) parts.push_back(builder.Reshape(value, {1}));
  Instruction* vector = parts.size() == 1 ? parts[0] : builder.Concatenate(parts, 0);
  return builder.Broadcast(vector, indices.dims(), {components.vector_dim});
}

// Where this device's shard of every indexed dimension begins, by component, in `type`; false where none is split.
bool ShardStarts(Emitter& emitter, const LocalArray& operand, const Components& components, ElementType type,
                 std::vector<Instruction*>* starts) {
  bool any = false;
  for (int64_t d : *components.map) {
    const AxisList& axes = operand.sharding.dims[d].axes;
    any |= !axes.empty();
    Instruction* start = axes.empty()
                             ? emitter.builder().Scalar(ElementType::kS32, 0)
                             : emitter.ShardStart(axes, operand.local->shape().dims()[d]);
    starts->push_back(type == ElementType::kS32 ? start : emitter.builder().Convert(type, start));
  }
  return any;
}

// Types too narrow for a bound or a shift are widened.
Instruction* Widened(Emitter& emitter, Instruction* indices) {
  return tensor::ByteWidth(indices->shape().type()) < 4 ? emitter.builder().Convert(ElementType::kS32, indices)
                                                        : indices;
}

}  // namespace

// An indexed dimension can be split where slices have size 1 along it and every index says where.
std::vector<bool> SplitGather(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const hlo::GatherDimensions& dims = *instruction.attributes().gather;
  const bool summable = instruction.shape().type() != ElementType::kPred;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction) continue;
    result[f] = summable && IndexOf(dims.start_index_map, OperandDim(rule, f)) >= 0;
  }
  return result;
}

namespace {

// The indices moved into this shard, and for each index whether it lies in it.
struct ShardIndices {
  Instruction* indices = nullptr;
  Instruction* inside = nullptr;  // pred, of the indices' shape without the vector dimension.
};

ShardIndices IndicesInShard(Emitter& emitter, const LocalOp& op, const Components& components) {
  const Dims reduced = ReducedDims(op, 0);
  hlo::Builder& builder = emitter.builder();
  const LocalArray& operand = op.operands[0];
  Instruction* indices = Widened(emitter, op.operands[1].local);
  const ElementType type = indices->shape().type();
  // Clamped against the whole, as the definition says, then shifted.
  std::vector<Instruction*> zeros, lasts, sizes, starts;
  for (int64_t d : *components.map) {
    const size_t at = d;
    // A slice of the whole dimension is this shard's, wherever it is: its index is always 0.
    const bool split = IndexOf(reduced, d) >= 0;
    const int64_t last = operand.global.dims[at] - op.source->attributes().slice_sizes[at];
    zeros.push_back(builder.Scalar(type, 0));
    lasts.push_back(builder.Scalar(type, static_cast<double>(last)));
    const int64_t shard = split ? operand.local->shape().dims()[at] : std::numeric_limits<int32_t>::max();
    sizes.push_back(builder.Scalar(ElementType::kS32, static_cast<double>(shard)));
  }
  const auto spread = [&](const std::vector<Instruction*>& values) {
    return PerComponent(emitter, components, hlo::Shape(values[0]->shape().type(), indices->shape().dims()), values);
  };
  indices = builder.Binary(Opcode::kMaximum, indices, spread(zeros));
  indices = builder.Binary(Opcode::kMinimum, indices, spread(lasts));
  if (type != ElementType::kS32) indices = builder.Convert(ElementType::kS32, indices);
  ShardStarts(emitter, operand, components, ElementType::kS32, &starts);
  for (size_t c = 0; c < starts.size(); ++c) {
    if (IndexOf(reduced, (*components.map)[c]) < 0) starts[c] = builder.Scalar(ElementType::kS32, 0);
  }
  indices = builder.Binary(Opcode::kSubtract, indices, spread(starts));
  Instruction* zero = builder.Zero(indices->shape());
  Instruction* inside = builder.Binary(Opcode::kAnd, builder.Compare(hlo::Comparison::kGe, indices, zero),
                                       builder.Compare(hlo::Comparison::kLt, indices, spread(sizes)));
  if (components.vector_dim < indices->shape().ndim()) {
    inside = builder.Reduce(inside, builder.Scalar(ElementType::kPred, 1), {components.vector_dim},
                            hlo::ScalarReducer(emitter.program().module, Opcode::kAnd, ElementType::kPred));
  }
  return {indices, inside};
}

}  // namespace

absl::Status EmitGather(Emitter& emitter, LocalOp& op) {
  hlo::Builder& builder = emitter.builder();
  const hlo::GatherDimensions& dims = *op.source->attributes().gather;
  const LocalArray& operand = op.operands[0];
  std::vector<Instruction*> operands = Locals(op.operands);
  const Dims split = ReducedDims(op, 0);
  ShardIndices in_shard;
  if (!split.empty()) {
    in_shard = IndicesInShard(emitter, op, {&dims.start_index_map, dims.index_vector_dim});
    operands[1] = in_shard.indices;
  }
  Instruction* local = emitter.CloneLocal(*op.source, LocalResultShape(op), operands);
  Dims& sizes = local->mutable_attributes().slice_sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    // A batching dimension has slices of size 1; a whole one takes what the shard has.
    const bool whole = sizes[d] == operand.global.dims[d] && IndexOf(split, static_cast<int64_t>(d)) < 0 &&
                       IndexOf(dims.operand_batching_dims, static_cast<int64_t>(d)) < 0;
    if (whole) sizes[d] = operand.local->shape().dims()[d];
  }
  if (!split.empty()) {
    Dims batch;
    for (int64_t d = 0; d < local->shape().ndim(); ++d) {
      if (IndexOf(dims.offset_dims, d) < 0) batch.push_back(d);
    }
    Instruction* inside = builder.Broadcast(in_shard.inside, local->shape().dims(), batch);
    local = builder.Select(inside, local, builder.Zero(local->shape()));
  }
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

std::vector<bool> SplitScatter(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThroughAndReduced(instruction, rule);
  const hlo::ScatterDimensions& dims = *instruction.attributes().scatter;
  const size_t first_update = static_cast<size_t>(instruction.operand_count()) / 2 + 1;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const Factor& factor = rule.factors[f];
    if (factor.kind == FactorKind::kReduction) {
      result[f] =
          result[f] && instruction.shape().is_array() && HasIdentity(factor.reduction, instruction.shape().type());
      continue;
    }
    const int64_t d = OperandDim(rule, f);
    if (d < 0 || IndexOf(dims.input_batching_dims, d) >= 0) continue;
    const TensorFactors& update = rule.operands[first_update];
    const bool whole_window =
        std::any_of(update.begin(), update.end(), [&](const DimensionFactors& factors) { return Has(factors, f); });
    const bool row = IndexOf(dims.inserted_window_dims, d) >= 0 &&
                     IndexOf(dims.scatter_dims_to_operand_dims, d) >= 0;
    // A window that covers a dimension may also be moved along it: then it would be skipped as outside.
    const bool fixed = whole_window && IndexOf(dims.scatter_dims_to_operand_dims, d) < 0;
    result[f] = result[f] && (fixed || row);
  }
  return result;
}

namespace {

// Whether every element is the scalar constant that `identity` is.
bool IsFilledWith(const Instruction& x, const Instruction& identity) {
  if (x.opcode() == Opcode::kBroadcast) return IsFilledWith(*x.operand(0), identity);
  return x.opcode() == Opcode::kConstant && x.shape().is_scalar() && !x.literal()->elided &&
         x.literal()->array == identity.literal()->array;
}

// Partial scatters: the operand counts on the first device of each group only, and padding adds nothing.
void MakePartial(Emitter& emitter, const LocalOp& op, std::vector<Instruction*>* operands) {
  const Dims split = ReducedDims(op, 2);
  if (split.empty()) return;
  hlo::Builder& builder = emitter.builder();
  const hlo::Opcode reduction = op.results[0].sharding.unreduced_reduction;
  Instruction* identity = IdentityOf(emitter, reduction, op.operands[2].global.type);
  (*operands)[2] = emitter.MaskPadding(op.operands[2], split, identity);
  if (IsFilledWith(*(*operands)[0], *identity)) return;
  const hlo::Shape& shape = (*operands)[0]->shape();
  Instruction* position = emitter.Position(op.results[0].sharding.unreduced);
  Instruction* first = builder.Compare(hlo::Comparison::kEq, position, builder.Scalar(ElementType::kS32, 0));
  Instruction* everywhere = builder.Full(hlo::Shape(ElementType::kPred, shape.dims()), first);
  (*operands)[0] = builder.Select(everywhere, (*operands)[0], builder.Full(shape, identity));
}

}  // namespace

absl::Status EmitScatter(Emitter& emitter, LocalOp& op) {
  const hlo::ScatterDimensions& dims = *op.source->attributes().scatter;
  std::vector<Instruction*> operands = Locals(op.operands);
  const size_t at = operands.size() / 2;  // Of the indices.
  const Components components{&dims.scatter_dims_to_operand_dims, dims.index_vector_dim};
  bool split = false;
  for (int64_t d : dims.scatter_dims_to_operand_dims) {
    split |= !op.operands[0].sharding.dims[d].axes.empty();
  }
  if (split) {
    Instruction* indices = Widened(emitter, operands[at]);
    std::vector<Instruction*> starts;
    ShardStarts(emitter, op.operands[0], components, indices->shape().type(), &starts);
    operands[at] = emitter.builder().Binary(Opcode::kSubtract, indices,
                                            PerComponent(emitter, components, indices->shape(), starts));
  }
  if (operands.size() == 3) MakePartial(emitter, op, &operands);
  SetResults(emitter, op, emitter.CloneLocal(*op.source, LocalResultShape(op), operands));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
