// Iota and constants on shards.
#include <algorithm>

#include "hlo/analysis/constants.h"
#include "sharding/partition/ops/families.h"

namespace xlad::sharding {

using hlo::Instruction;

// Counts from the global index of the shard's first element in the type of indices, and converts the result to the
// element type. An element type that is too narrow for the last index wraps around, as in the source program.
absl::Status EmitIota(LocalBuilder& local, LocalOp& op) {
  const LocalArray& result = op.results[0];
  const int64_t d = op.source->dimensions()[0];
  const AxisList& axes = result.sharding.dims[d].axes;
  if (axes.empty()) return EmitSame(local, op);
  hlo::Builder& builder = local.builder();
  const Dims dims = LocalShape(result).dims();
  Instruction* start = local.ShardStart(axes, dims[d]);
  const hlo::Shape shape(start->shape().type(), dims);
  Instruction* index = builder.Binary(hlo::Opcode::kAdd, builder.Iota(shape, d), builder.Full(shape, start));
  op.results[0].local = builder.ConvertTo(result.global.type, index);
  return absl::OkStatus();
}

// A constant of one repeated value becomes a broadcast of local size. Any other constant is replicated, and the caller
// slices it.
absl::Status EmitConstant(LocalBuilder& local, LocalOp& op) {
  LocalArray& result = op.results[0];
  const hlo::Literal& literal = *op.source->literal();
  if (!result.sharding.IsReplicated() && !literal.elided && hlo::IsSplat(literal.array)) {
    const auto bytes = literal.array.bytes();
    std::vector<std::byte> first(bytes.begin(), bytes.begin() + tensor::ByteWidth(result.global.type));
    Instruction* scalar =
        local.builder().Constant(tensor::Array(tensor::Shape{result.global.type, {}}, std::move(first)));
    result.local = local.builder().Full(LocalShape(result), scalar);
    return absl::OkStatus();
  }
  result.sharding = TensorSharding::Replicated(result.global.ndim());
  return EmitSame(local, op);
}

}  // namespace xlad::sharding
