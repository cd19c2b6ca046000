// Dynamic slices and updates on shards.
#include <algorithm>

#include "sharding/partition/ops/families.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

// A type that holds every position along the dimensions of an array, including positions in the padding of shards.
ElementType StartType(const LocalArray& array) {
  ElementType type = ElementType::kS32;
  for (size_t d = 0; d < array.global.dims.size(); ++d) {
    const ElementType needed = IndexType(array.global.dims[d], ShardCount(array.sharding.dims[d].axes));
    if (needed == ElementType::kS64) type = needed;
  }
  return type;
}

// Clamps a start index as the op's definition requires: `extent` elements fit into `size`. The result has type `type`.
Instruction* ClampedStart(LocalBuilder& local, Instruction* start, int64_t size, int64_t extent, ElementType type) {
  hlo::Builder& builder = local.builder();
  // The type of the comparison must be able to represent the bound.
  if (tensor::ByteWidth(start->shape().type()) < tensor::ByteWidth(type)) start = builder.Convert(type, start);
  const ElementType own = start->shape().type();
  start = builder.Binary(Opcode::kMaximum, start, builder.Scalar(own, 0));
  start = builder.Binary(Opcode::kMinimum, start, builder.Scalar(own, size - extent));
  return builder.ConvertTo(type, start);
}

}  // namespace

std::vector<bool> SplitDynamicSlice(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  for (size_t f = 0; f < result.size(); ++f) result[f] = result[f] || rule.factors[f].kind == FactorKind::kReduction;
  return result;
}

// If the slice is smaller than a split dimension, every shard is padded with zeros so that the slice fits on both
// sides. From the padded shard, the device takes its part of the slice, in which elements of other shards are zero. The
// slice is the bitwise or of all devices' parts, because each element is non-zero on at most one device. (Their sum
// would change -0 to +0.)
absl::Status EmitDynamicSlice(LocalBuilder& local, LocalOp& op) {
  hlo::Builder& builder = local.builder();
  const LocalArray& x = op.operands[0];
  std::vector<Instruction*> operands = Locals(op.operands);
  const hlo::Shape shape = LocalResultShape(op);
  const Dims split = ReducedDims(op, 0);
  if (!split.empty()) {
    const ElementType type = StartType(x);
    Instruction* zero = builder.Scalar(shape.type(), 0);
    std::vector<hlo::PaddingDimension> room(shape.dims().size());
    for (size_t d = 0; d < room.size(); ++d) {
      operands[1 + d] =
          ClampedStart(local, operands[1 + d], x.global.dims[d], op.results[0].global.dims[d], type);
    }
    for (int64_t d : split) {
      const int64_t extent = shape.dims()[d];
      room[d] = {extent, extent, 0};
      Instruction* begin =
          builder.ConvertTo(type, local.ShardStart(x.sharding.dims[d].axes, x.local->shape().dims()[d]));
      operands[1 + d] = builder.Binary(Opcode::kSubtract, operands[1 + d], begin);
      operands[1 + d] = builder.Binary(Opcode::kAdd, operands[1 + d], builder.Scalar(type, extent));
    }
    operands[0] = builder.Pad(local.MaskPadding(x, split, zero), zero, std::move(room));
  }
  Instruction* slice = local.CloneLocal(*op.source, shape, operands);
  slice->mutable_attributes().slice_sizes = slice->shape().dims();
  SetResults(local, op, slice);
  return absl::OkStatus();
}

namespace {

// A dimension in which the array is split and the update is smaller than the array.
struct UpdateWindow {
  int64_t dim = 0;
  int64_t shard = 0;             // The size of the array's shard.
  int64_t update = 0;            // The size of the update.
  Instruction* start = nullptr;  // The first index of the update, relative to the shard. May be outside of the shard.
};

// Writes the update into a shard that is padded so that the update fits on both sides, and removes the padding again.
Instruction* UpdateWithRoom(LocalBuilder& local, const LocalOp& op, const std::vector<UpdateWindow>& windows,
                            std::vector<Instruction*> operands) {
  hlo::Builder& builder = local.builder();
  const Dims shard = operands[0]->shape().dims();
  std::vector<hlo::PaddingDimension> room(shard.size());
  Dims low(shard.size(), 0), high = shard;
  for (const UpdateWindow& window : windows) {
    room[window.dim] = {window.update, window.update, 0};
    low[window.dim] = window.update;
    high[window.dim] += window.update;
    operands[2 + window.dim] =
        builder.Binary(Opcode::kAdd, window.start, builder.Scalar(window.start->shape().type(), window.update));
  }
  operands[0] = builder.Pad(operands[0], builder.Scalar(operands[0]->shape().type(), 0), room);
  return builder.Slice(local.CloneLocal(*op.source, operands[0]->shape(), operands), low, high);
}

// Reads the block of the shard that is nearest to the update, replaces the elements that the update covers, and writes
// the block back. Touches only as many elements as the update has, so that a loop can update a large array in place.
Instruction* UpdateNearestBlock(LocalBuilder& local, const LocalOp& op, const std::vector<UpdateWindow>& windows,
                                std::vector<Instruction*> operands) {
  hlo::Builder& builder = local.builder();
  Instruction* update = operands[1];
  const Dims sizes = update->shape().dims();
  const ElementType type = operands[2]->shape().type();
  const auto scalar = [&](int64_t value) { return builder.Scalar(type, value); };
  std::vector<hlo::PaddingDimension> room(sizes.size());
  std::vector<Instruction*> shifts(sizes.size(), scalar(0));
  Instruction* covered = nullptr;  // pred[sizes]: whether the update covers an element of the block.
  for (const UpdateWindow& window : windows) {
    Instruction*& start = operands[2 + window.dim];
    start = builder.Binary(Opcode::kMinimum, builder.Binary(Opcode::kMaximum, window.start, scalar(0)),
                           scalar(window.shard - window.update));
    // Element i of the block is element i + shift of the update.
    Instruction* shift = builder.Binary(Opcode::kSubtract, start, window.start);
    const hlo::Shape index(type, {window.update});
    Instruction* from = builder.Binary(Opcode::kAdd, builder.Iota(index, 0), builder.Full(index, shift));
    Instruction* inside = builder.Binary(
        Opcode::kAnd, builder.Compare(hlo::Comparison::kGe, from, builder.Zero(index)),
        builder.Compare(hlo::Comparison::kLt, from, builder.Full(index, scalar(window.update))));
    inside = builder.Broadcast(inside, sizes, {window.dim});
    covered = covered == nullptr ? inside : builder.Binary(Opcode::kAnd, covered, inside);
    if (window.update == 1) continue;  // An update of one element needs no shift.
    room[window.dim] = {window.update, window.update, 0};
    shifts[window.dim] = builder.Binary(Opcode::kAdd, shift, scalar(window.update));
  }
  const std::vector<Instruction*> starts(operands.begin() + 2, operands.end());
  Instruction* block = builder.DynamicSlice(operands[0], starts, sizes);
  if (room != std::vector<hlo::PaddingDimension>(sizes.size())) {
    update = builder.DynamicSlice(builder.Pad(update, builder.Scalar(update->shape().type(), 0), room), shifts, sizes);
  }
  operands[1] = builder.Select(covered, update, block);
  return local.CloneLocal(*op.source, operands[0]->shape(), operands);
}

}  // namespace

absl::Status EmitDynamicUpdateSlice(LocalBuilder& local, LocalOp& op) {
  const LocalArray &x = op.operands[0], &update = op.operands[1];
  const ElementType type = StartType(x);
  std::vector<Instruction*> operands = Locals(op.operands);
  std::vector<UpdateWindow> windows;
  for (int64_t d = 0; d < x.global.ndim(); ++d) {
    const int64_t size = x.global.dims[d], extent = update.global.dims[d];
    const AxisList& axes = x.sharding.dims[d].axes;
    operands[2 + d] = ClampedStart(local, operands[2 + d], size, extent, type);
    if (axes.empty() || extent == size) continue;
    const int64_t shard = ShardSize(size, ShardCount(axes));
    Instruction* begin = local.builder().ConvertTo(type, local.ShardStart(axes, shard));
    windows.push_back({d, shard, extent, local.builder().Binary(Opcode::kSubtract, operands[2 + d], begin)});
  }
  if (windows.empty()) return EmitSame(local, op);
  const bool fits = std::all_of(windows.begin(), windows.end(),
                                [](const UpdateWindow& window) { return window.update <= window.shard; });
  SetResults(local, op, fits ? UpdateNearestBlock(local, op, windows, std::move(operands))
                             : UpdateWithRoom(local, op, windows, std::move(operands)));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
