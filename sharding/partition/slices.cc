// Static and dynamic slices on shards.
#include <algorithm>

#include "sharding/partition/op_family.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using tensor::ElementType;

bool IsSplit(const LocalArray& array, size_t d) { return !array.sharding.dims[d].axes.empty(); }

}  // namespace

// A split dimension is one that is taken whole; the others keep their bounds.
absl::Status EmitSlice(Emitter& emitter, LocalOp& op) {
  Instruction* local = emitter.CloneLocal(*op.source, LocalResultShape(op), Locals(op.operands));
  std::vector<hlo::SliceDimension>& slice = local->mutable_attributes().slice;
  for (size_t d = 0; d < slice.size(); ++d) {
    if (IsSplit(op.operands[0], d)) slice[d] = {0, local->operand(0)->shape().dims()[d], 1};
  }
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

absl::Status EmitDynamicSlice(Emitter& emitter, LocalOp& op) {
  Instruction* local = emitter.CloneLocal(*op.source, LocalResultShape(op), Locals(op.operands));
  local->mutable_attributes().slice_sizes = local->shape().dims();
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

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

// A start index clamped as the definition says, in its own type, and then in s32.
Instruction* ClampedStart(Emitter& emitter, const LocalOp& op, size_t d) {
  hlo::Builder& builder = emitter.builder();
  const int64_t size = op.operands[0].global.dims[d], update = op.operands[1].global.dims[d];
  Instruction* start = op.operands[2 + d].local;
  // In a narrow type the bound may not be expressible.
  if (tensor::ByteWidth(start->shape().type()) < 4) start = builder.Convert(ElementType::kS32, start);
  Instruction* zero = builder.Scalar(start->shape().type(), 0);
  Instruction* last = builder.Scalar(start->shape().type(), static_cast<double>(size - update));
  start = builder.Binary(hlo::Opcode::kMinimum, builder.Binary(hlo::Opcode::kMaximum, start, zero), last);
  return start->shape().type() == ElementType::kS32 ? start : builder.Convert(ElementType::kS32, start);
}

// The operand gets room for a whole update on both sides, so that an update that lies partly or wholly outside of the
// shard writes into the room, which is cut off again.
Instruction* WriteWithRoom(Emitter& emitter, LocalOp& op, const std::vector<Window>& windows) {
  hlo::Builder& builder = emitter.builder();
  std::vector<Instruction*> operands = Locals(op.operands);
  const Dims local = operands[0]->shape().dims();
  std::vector<hlo::PaddingDimension> room(local.size());
  Dims low(local.size(), 0), high = local;
  for (size_t d = 0; d < local.size(); ++d) operands[2 + d] = ClampedStart(emitter, op, d);
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
    Instruction* start = ClampedStart(emitter, op, d);
    const AxisList& axes = op.operands[0].sharding.dims[d].axes;
    Instruction* begin = emitter.ShardStart(axes, ShardSize(size, ShardCount(axes)));
    windows.push_back({d, update, builder.Binary(hlo::Opcode::kSubtract, start, begin)});
  }
  if (windows.empty()) return EmitSame(emitter, op);
  SetResults(emitter, op, WriteWithRoom(emitter, op, windows));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
