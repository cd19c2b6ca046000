// Iota and constants on shards.
#include <algorithm>
#include <cstring>

#include "hlo/analysis/constants.h"
#include "sharding/partition/op_family.h"

namespace xlad::sharding {

using hlo::Instruction;
using tensor::ElementType;

// Counts in the shard, plus where the shard begins. Types that cannot count to the shard's begin exactly (s8 of a long
// dimension wraps in the whole program too) wrap in the same way; floats count in s32 first.
absl::Status EmitIota(Emitter& emitter, LocalOp& op) {
  const LocalArray& result = op.results[0];
  const size_t d = op.source->dimensions()[0];
  const AxisList& axes = result.sharding.dims[d].axes;
  if (axes.empty()) return EmitSame(emitter, op);
  hlo::Builder& builder = emitter.builder();
  const hlo::Shape shape(ElementType::kS32, LocalShape(result).dims());
  Instruction* start = emitter.ShardStart(axes, shape.dims()[d]);
  Instruction* local = builder.Binary(hlo::Opcode::kAdd, builder.Iota(shape, static_cast<int64_t>(d)),
                                      builder.Full(shape, start));
  if (result.global.type != ElementType::kS32) local = builder.Convert(result.global.type, local);
  op.results[0].local = local;
  return absl::OkStatus();
}

// One value everywhere: a broadcast of local size. Others stay whole on every device, and the caller slices.
absl::Status EmitConstant(Emitter& emitter, LocalOp& op) {
  LocalArray& result = op.results[0];
  const hlo::Literal& literal = *op.source->literal();
  if (result.sharding.IsReplicated()) return EmitSame(emitter, op);
  if (!literal.elided && hlo::IsSplat(literal.array)) {
    const tensor::Array& whole = literal.array;
    const size_t width = tensor::ByteWidth(whole.shape().type);
    std::vector<std::byte> first(whole.bytes().begin(), whole.bytes().begin() + width);
    Instruction* scalar =
        emitter.builder().Constant(tensor::Array(tensor::Shape{whole.shape().type, {}}, std::move(first)));
    result.local = emitter.builder().Full(LocalShape(result), scalar);
    return absl::OkStatus();
  }
  LocalArray whole = result;
  whole.sharding = TensorSharding::Replicated(whole.global.ndim());
  whole.local = emitter.CloneLocal(*op.source, op.source->shape(), {});
  result = emitter.Reshard(whole, result.sharding, {op.source, "a constant is split"});
  return absl::OkStatus();
}

}  // namespace xlad::sharding
