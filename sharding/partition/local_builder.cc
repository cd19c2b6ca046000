#include "sharding/partition/local_builder.h"

#include <limits>

#include "hlo/attribute_keys.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

ElementType IndexType(int64_t extent) {
  return extent <= std::numeric_limits<int32_t>::max() ? ElementType::kS32 : ElementType::kS64;
}

ElementType IndexType(int64_t size, int64_t shards) { return IndexType(ShardSize(size, shards) * shards); }

Instruction* LocalBuilder::Position(const AxisList& axes) {
  static_assert(kMaxDevices <= std::numeric_limits<int32_t>::max());
  Instruction*& position = positions_[axes];
  if (position != nullptr) return position;
  if (partition_id_ == nullptr) partition_id_ = builder_.Convert(ElementType::kS32, builder_.PartitionId());
  Instruction* sum = nullptr;
  int64_t scale = ShardCount(axes);
  for (const AxisRef& ref : axes) {
    // Device ids are row-major in the mesh, so the stride of an axis part is the product of the sizes of all minor
    // parts.
    int64_t stride = mesh().axes()[ref.axis].size / (ref.pre * ref.size);
    for (int a = ref.axis + 1; a < std::ssize(mesh().axes()); ++a) stride *= mesh().axes()[a].size;
    scale /= ref.size;
    Instruction* coordinate = partition_id_;
    const auto apply = [&](Opcode opcode, int64_t operand) {
      coordinate = builder_.Binary(opcode, coordinate, builder_.Scalar(ElementType::kS32, operand));
    };
    if (stride > 1) apply(Opcode::kDivide, stride);
    if (stride * ref.size < mesh().devices()) apply(Opcode::kRemainder, ref.size);
    if (scale > 1) apply(Opcode::kMultiply, scale);
    sum = sum == nullptr ? coordinate : builder_.Binary(Opcode::kAdd, sum, coordinate);
  }
  position = sum != nullptr ? sum : builder_.Scalar(ElementType::kS32, 0);
  return position;
}

Instruction* LocalBuilder::IsFirst(const AxisList& axes) {
  return builder_.Compare(hlo::Comparison::kEq, Position(axes), builder_.Scalar(ElementType::kS32, 0));
}

Instruction* LocalBuilder::ShardStart(const AxisList& axes, int64_t shard_size) {
  const ElementType type = IndexType(shard_size * ShardCount(axes));
  Instruction* position = builder_.ConvertTo(type, Position(axes));
  return builder_.Binary(Opcode::kMultiply, position, builder_.Scalar(type, shard_size));
}

Instruction* LocalBuilder::RealIndices(const AxisList& axes, int64_t size) {
  Instruction*& real = real_indices_[{axes, size}];
  if (real != nullptr) return real;
  const int64_t shard = ShardSize(size, ShardCount(axes));
  Instruction* start = ShardStart(axes, shard);
  const hlo::Shape shape(start->shape().type(), {shard});
  Instruction* global = builder_.Binary(Opcode::kAdd, builder_.Iota(shape, 0), builder_.Full(shape, start));
  real = builder_.Compare(hlo::Comparison::kLt, global, builder_.Full(shape, builder_.Scalar(shape.type(), size)));
  return real;
}

bool LocalBuilder::HasPadding(const LocalArray& array, int64_t dim) {
  return array.global.dims[dim] % ShardCount(array.sharding.dims[dim].axes) != 0;
}

Instruction* LocalBuilder::MaskPadding(const LocalArray& array, absl::Span<const int64_t> dims, Instruction* fill) {
  Instruction* x = array.local;
  for (int64_t d : dims) {
    if (!HasPadding(array, d)) continue;
    Instruction* real = RealIndices(array.sharding.dims[d].axes, array.global.dims[d]);
    x = builder_.Select(builder_.Broadcast(real, x->shape().dims(), {d}), x, builder_.Full(x->shape(), fill));
  }
  return x;
}

Instruction* LocalBuilder::CloneLocal(const Instruction& source, hlo::Shape shape,
                                      absl::Span<Instruction* const> operands) {
  std::vector<hlo::Computation*> called;
  for (const hlo::Computation* computation : source.called()) called.push_back(context_.Cloned(*computation));
  return CloneCalling(source, std::move(shape), std::move(called), operands);
}

Instruction* LocalBuilder::CloneCalling(const Instruction& source, hlo::Shape shape,
                                        std::vector<hlo::Computation*> called,
                                        absl::Span<Instruction* const> operands) {
  std::unique_ptr<Instruction> clone = source.CloneWithoutOperands();
  clone->mutable_shape() = std::move(shape);
  clone->mutable_called() = std::move(called);
  clone->set_sharding(nullptr);
  hlo::EraseShardingAttributes(clone.get());
  clone->set_name(source.name());
  return computation()->Add(std::move(clone), operands);
}

Instruction* LocalBuilder::Permute(const LocalArray& from, Instruction* piece,
                                   std::vector<std::pair<int64_t, int64_t>> pairs, const AxisList& axes,
                                   const ReshardCause& cause) {
  builder_.set_template(cause.op);
  Instruction* received =
      builder_.CollectivePermute(piece, std::move(pairs), ChannelOf(context_.recorder().NewId()));
  ReshardStep step;
  step.kind = ReshardStep::Kind::kPermute;
  step.axes = axes;
  context_.recorder().Record(received, {from, step, from.sharding, cause});
  return received;
}

Instruction* LocalBuilder::GatherPieces(const LocalArray& from, Instruction* piece, int64_t dim, const AxisList& axes,
                                        const ReshardCause& cause) {
  builder_.set_template(cause.op);
  Instruction* all = builder_.AllGather(piece, dim, ReplicaGroupsOver(mesh(), axes),
                                        ChannelOf(context_.recorder().NewId()));
  ReshardStep step;
  step.kind = ReshardStep::Kind::kAllGather;
  step.axes = axes;
  context_.recorder().Record(all, {from, step, from.sharding, cause});
  return all;
}

}  // namespace xlad::sharding
