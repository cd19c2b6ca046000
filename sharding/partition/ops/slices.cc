// Dynamic slices on shards.
#include <algorithm>

#include "sharding/partition/op_family.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using tensor::ElementType;

bool IsSplit(const LocalArray& array, size_t d) { return !array.sharding.dims[d].axes.empty(); }

}  // namespace

namespace {

// One dimension in which the operand is split and the update is smaller than the whole: where the update lies relative
// to this shard.
struct Window {
  size_t dim;
  int64_t update;        // Size of the update.
  Instruction* start;    // In the shard; may be negative or beyond its end.
};

Instruction* ScalarS32(Emitter& emitter, int64_t value) {
  return emitter.builder().Scalar(ElementType::kS32, static_cast<double>(value));
}

// A start index clamped as the definition says so that `extent` fits into `size`, in its own type, and then in s32.
Instruction* ClampedStart(Emitter& emitter, Instruction* start, int64_t size, int64_t extent) {
  hlo::Builder& builder = emitter.builder();
  // In a narrow type the bound may not be expressible.
  if (tensor::ByteWidth(start->shape().type()) < 4) start = builder.Convert(ElementType::kS32, start);
  Instruction* zero = builder.Scalar(start->shape().type(), 0);
  Instruction* last = builder.Scalar(start->shape().type(), static_cast<double>(size - extent));
  start = builder.Binary(hlo::Opcode::kMinimum, builder.Binary(hlo::Opcode::kMaximum, start, zero), last);
  return start->shape().type() == ElementType::kS32 ? start : builder.Convert(ElementType::kS32, start);
}

}  // namespace

// Where the slice is smaller than a split dimension, every shard gets room for a whole slice on both sides, with zeros:
// from there it takes what it has of the slice, and the sum of all is the slice.
absl::Status EmitDynamicSlice(Emitter& emitter, LocalOp& op) {
  hlo::Builder& builder = emitter.builder();
  std::vector<Instruction*> operands = Locals(op.operands);
  const hlo::Shape shape = LocalResultShape(op);
  const Dims split = ReducedDims(op, 0);
  if (!split.empty()) {
    Instruction* zero = builder.Scalar(shape.type(), 0);
    std::vector<hlo::PaddingDimension> room(shape.dims().size());
    // The starts must be of one type.
    for (size_t d = 0; d < room.size(); ++d) {
      const int64_t size = op.operands[0].global.dims[d], extent = op.results[0].global.dims[d];
      operands[1 + d] = ClampedStart(emitter, operands[1 + d], size, extent);
    }
    for (int64_t dim : split) {
      const size_t d = dim;
      const int64_t extent = shape.dims()[d];
      room[d] = {extent, extent, 0};
      Instruction* begin = emitter.ShardStart(op.operands[0].sharding.dims[d].axes, operands[0]->shape().dims()[d]);
      operands[1 + d] = builder.Binary(hlo::Opcode::kSubtract, operands[1 + d], begin);
      operands[1 + d] = builder.Binary(hlo::Opcode::kAdd, operands[1 + d], ScalarS32(emitter, extent));
    }
    operands[0] = builder.Pad(emitter.MaskPadding(op.operands[0], split, zero), zero, std::move(room));
  }
  Instruction* local = emitter.CloneLocal(*op.source, shape, operands);
  local->mutable_attributes().slice_sizes = local->shape().dims();
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

namespace {

// The operand gets room for a whole update on both sides, so that an update that lies partly or wholly outside of the
// shard writes into the room, which is cut off again.
Instruction* WriteWithRoom(Emitter& emitter, LocalOp& op, const std::vector<Window>& windows) {
  hlo::Builder& builder = emitter.builder();
  std::vector<Instruction*> operands = Locals(op.operands);
  const Dims local = operands[0]->shape().dims();
  std::vector<hlo::PaddingDimension> room(local.size());
  Dims low(local.size(), 0), high = local;
  for (size_t d = 0; d < local.size(); ++d) {
    const int64_t size = op.operands[0].global.dims[d], update = op.operands[1].global.dims[d];
    operands[2 + d] = ClampedStart(emitter, operands[2 + d], size, update);
  }
  for (const Window& window : windows) {
    room[window.dim] = {window.update, window.update, 0};
    low[window.dim] = window.update;
    high[window.dim] += window.update;
    operands[2 + window.dim] =
        builder.Binary(hlo::Opcode::kAdd, window.start, ScalarS32(emitter, window.update));
  }
  operands[0] = builder.Pad(operands[0], builder.Scalar(operands[0]->shape().type(), 0), room);
  Instruction* written = emitter.CloneLocal(*op.source, operands[0]->shape(), operands);
  return builder.Slice(written, low, high);
}

}  // namespace

absl::Status EmitDynamicUpdateSlice(Emitter& emitter, LocalOp& op) {
  hlo::Builder& builder = emitter.builder();
  std::vector<Window> windows;
  for (size_t d = 0; d < op.operands[0].global.dims.size(); ++d) {
    const int64_t size = op.operands[0].global.dims[d], update = op.operands[1].global.dims[d];
    if (!IsSplit(op.operands[0], d) || update == size) continue;
    Instruction* start = ClampedStart(emitter, op.operands[2 + d].local, size, update);
    const AxisList& axes = op.operands[0].sharding.dims[d].axes;
    Instruction* begin = emitter.ShardStart(axes, ShardSize(size, ShardCount(axes)));
    windows.push_back({d, update, builder.Binary(hlo::Opcode::kSubtract, start, begin)});
  }
  if (windows.empty()) return EmitSame(emitter, op);
  SetResults(emitter, op, WriteWithRoom(emitter, op, windows));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
