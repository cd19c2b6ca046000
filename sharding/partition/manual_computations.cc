// Manual computations (jax.shard_map). An array inside a manual computation is one manual shard. Only axes that are not
// manual (the free axes) may split it further. The instructions inside may include the user's own collectives.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/attribute_keys.h"
#include "sharding/partition/computation_partitioner.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// The shapes of the global array outside of a manual computation and of its manual shard inside.
struct BorderShapes {
  const hlo::Shape& global;
  const hlo::Shape& manual;

  // The number of manual shards of dimension d.
  int64_t Shards(size_t d) const { return manual.dims()[d] == 0 ? 1 : global.dims()[d] / manual.dims()[d]; }
};

void Append(const DimensionSharding& from, size_t i, DimensionSharding* to) {
  to->axes.push_back(from.axes[i]);
  to->origins.push_back(i < from.origins.size() ? from.origins[i] : nullptr);
}

// The sharding of the global array: in each dimension the manual axes of `outside`, then the free axes of `inside`.
TensorSharding OutsideSharding(const BorderShapes& shapes, const TensorSharding& outside,
                               const TensorSharding& inside) {
  TensorSharding result = inside;
  for (size_t d = 0; d < result.dims.size(); ++d) {
    int64_t shards = shapes.Shards(d);
    DimensionSharding dim;
    for (size_t i = 0; i < outside.dims[d].axes.size() && shards > 1; ++i) {
      shards /= outside.dims[d].axes[i].size;
      Append(outside.dims[d], i, &dim);
    }
    for (size_t i = 0; i < inside.dims[d].axes.size(); ++i) Append(inside.dims[d], i, &dim);
    result.dims[d] = std::move(dim);
  }
  return result;
}

// The sharding of the manual shard, which consists of the free axes of `outside`.
TensorSharding InsideSharding(const BorderShapes& shapes, const TensorSharding& outside) {
  TensorSharding result = outside;
  for (size_t d = 0; d < result.dims.size(); ++d) {
    int64_t shards = shapes.Shards(d);
    DimensionSharding& dim = result.dims[d];
    while (shards > 1 && !dim.axes.empty()) {
      shards /= dim.axes.front().size;
      dim.axes.erase(dim.axes.begin());
      if (!dim.origins.empty()) dim.origins.erase(dim.origins.begin());
    }
  }
  return result;
}

// In each dimension that has manual axes, removes the free axes if they do not divide the manual shard evenly, because
// the boundaries of the shards inside would then differ from those outside.
TensorSharding WithoutUneven(const BorderShapes& shapes, TensorSharding inside) {
  for (size_t d = 0; d < inside.dims.size(); ++d) {
    DimensionSharding& dim = inside.dims[d];
    const bool split = shapes.global.dims()[d] != shapes.manual.dims()[d];
    if (!split || shapes.manual.dims()[d] % ShardCount(dim.axes) == 0) continue;
    dim.axes.clear();
    dim.origins.clear();
  }
  return inside;
}

}  // namespace

bool IsInManualComputation(const Instruction& instruction) {
  return hlo::FindAttribute(instruction, hlo::kManualAxesKey) != nullptr;
}

// A border does not change data. It interprets the same local array as a shard of the global array or as a manual
// shard.
absl::Status ComputationPartitioner::VisitManualBorder(const Instruction& instruction) {
  const bool enters = hlo::IsCustomCall(instruction, hlo::kEnterManualCall);
  const Instruction& operand = *instruction.operand(0);
  if (!instruction.shape().is_array() || !operand.shape().is_array()) {
    return absl::InternalError(
        absl::StrCat(instruction.name(), ": found a tuple at the border of a manual computation, expected an array"));
  }
  const BorderShapes shapes{enters ? operand.shape() : instruction.shape(),
                            enters ? instruction.shape() : operand.shape()};
  const TensorSharding wanted = chooser_.Wanted(instruction)[0];
  const TensorSharding inside = WithoutUneven(shapes, enters ? wanted : InsideSharding(shapes, wanted));
  const TensorSharding outside =
      OutsideSharding(shapes, enters ? chooser_.Wanted(operand)[0] : wanted, inside);
  const auto cause = [&](const TensorSharding& sharding) {
    return ReshardCause{&instruction, absl::StrCat(enters ? "a manual computation takes it as "
                                                          : "a manual computation returns it as ",
                                                   ToString(context_.mesh(), sharding))};
  };
  const TensorSharding& needed = enters ? outside : inside;
  LocalArray value = reshards_.Reshard(Operands(instruction)[0], needed, cause(needed));
  if (!enters) reshards_.MarkNonUniform(value.local);
  value.global = instruction.shape().array();
  value.sharding = enters ? inside : outside;
  if (value.local->shape().dims() != LocalShape(value).dims()) {
    return absl::InternalError(absl::StrCat(instruction.name(), ": found ", value.local->shape().ToString(false),
                                            " on a device at the border of a manual computation, expected ",
                                            LocalShape(value).ToString(false)));
  }
  values_[&instruction] = {reshards_.Reshard(value, wanted, cause(wanted))};
  return absl::OkStatus();
}

// The id of a device is the same inside and outside of a manual computation.
absl::Status ComputationPartitioner::VisitPartitionId(const Instruction& instruction) {
  LocalArray value;
  value.local = local_.CloneLocal(instruction, instruction.shape(), {});
  value.global = instruction.shape().array();
  value.sharding = TensorSharding::Replicated(0);
  values_[&instruction] = {std::move(value)};
  return absl::OkStatus();
}

}  // namespace xlad::sharding
