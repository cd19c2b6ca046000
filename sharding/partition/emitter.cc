#include "sharding/partition/emitter.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "hlo/attribute_keys.h"
#include "sharding/partition/loop_values.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using Kind = ReshardStep::Kind;
using hlo::Instruction;
using tensor::ElementType;

Dims ZeroDims(size_t n) { return Dims(n, 0); }

}  // namespace

hlo::Computation* ProgramInProgress::Cloned(const hlo::Computation& computation) {
  hlo::Computation*& clone = cloned[&computation];
  if (clone == nullptr) clone = module->CloneComputation(computation, computation.name());
  return clone;
}

void ProgramInProgress::Warn(const Instruction& op, absl::string_view what) {
  const std::string place = source->module->SourceOf(op);
  std::string warning = absl::StrCat(op.name(), ": ", what, place.empty() ? "" : absl::StrCat(" (", place, ")"));
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(std::move(warning));
}

OriginPtr OriginOf(const TensorSharding& sharding, const AxisRef& axis) {
  for (const DimensionSharding& dim : sharding.dims) {
    for (size_t i = 0; i < dim.axes.size() && i < dim.origins.size(); ++i) {
      if (Overlap(dim.axes[i], axis) && dim.origins[i] != nullptr) return dim.origins[i];
    }
  }
  return nullptr;
}

TensorSharding WithOrigins(const DimensionAxes& placement, const TensorSharding& first, const TensorSharding& second) {
  TensorSharding result = TensorSharding::Replicated(std::ssize(placement));
  for (size_t d = 0; d < placement.size(); ++d) {
    DimensionSharding& dim = result.dims[d];
    dim.axes = Merged(placement[d]);
    for (const AxisRef& axis : dim.axes) {
      OriginPtr origin = OriginOf(first, axis);
      dim.origins.push_back(origin != nullptr ? origin : OriginOf(second, axis));
    }
  }
  return result;
}

Instruction* Emitter::Position(const AxisList& axes) {
  Instruction*& position = positions_[axes];
  if (position != nullptr) return position;
  if (partition_id_ == nullptr) partition_id_ = builder_.Convert(ElementType::kS32, builder_.PartitionId());
  Instruction* sum = nullptr;
  int64_t scale = ShardCount(axes);
  for (const AxisRef& ref : axes) {
    // The mesh is row-major: what lies to the right of the axis, and the axis' own minor part, is the stride.
    int64_t stride = mesh().axes()[ref.axis].size / (ref.pre * ref.size);
    for (size_t a = static_cast<size_t>(ref.axis) + 1; a < mesh().axes().size(); ++a) stride *= mesh().axes()[a].size;
    scale /= ref.size;
    Instruction* coordinate = partition_id_;
    if (stride > 1) {
      coordinate = builder_.Binary(hlo::Opcode::kDivide, coordinate, builder_.Scalar(ElementType::kS32, stride));
    }
    if (stride * ref.size < mesh().devices()) {
      coordinate = builder_.Binary(hlo::Opcode::kRemainder, coordinate, builder_.Scalar(ElementType::kS32, ref.size));
    }
    if (scale > 1) {
      coordinate = builder_.Binary(hlo::Opcode::kMultiply, coordinate, builder_.Scalar(ElementType::kS32, scale));
    }
    sum = sum == nullptr ? coordinate : builder_.Binary(hlo::Opcode::kAdd, sum, coordinate);
  }
  position = sum != nullptr ? sum : builder_.Scalar(ElementType::kS32, 0);
  return position;
}

Instruction* Emitter::ShardStart(const AxisList& axes, int64_t shard_size) {
  return builder_.Binary(hlo::Opcode::kMultiply, Position(axes),
                         builder_.Scalar(ElementType::kS32, static_cast<double>(shard_size)));
}

Instruction* Emitter::RealIndices(const AxisList& axes, int64_t size) {
  Instruction*& real = real_indices_[{axes, size}];
  if (real != nullptr) return real;
  const int64_t shard = ShardSize(size, ShardCount(axes));
  const hlo::Shape shape(ElementType::kS32, {shard});
  Instruction* global = builder_.Binary(hlo::Opcode::kAdd, builder_.Iota(shape, 0),
                                        builder_.Full(shape, ShardStart(axes, shard)));
  Instruction* end = builder_.Full(shape, builder_.Scalar(ElementType::kS32, static_cast<double>(size)));
  real = builder_.Compare(hlo::Comparison::kLt, global, end);
  return real;
}

bool Emitter::HasPadding(const LocalArray& array, int64_t dim) {
  const int64_t size = array.global.dims[dim];
  return size % ShardCount(array.sharding.dims[dim].axes) != 0;
}

Instruction* Emitter::MaskPadding(const LocalArray& array, absl::Span<const int64_t> dims, Instruction* fill) {
  Instruction* x = array.local;
  for (int64_t d : dims) {
    if (!HasPadding(array, d)) continue;
    const size_t at = d;
    Instruction* real = RealIndices(array.sharding.dims[at].axes, array.global.dims[at]);
    x = builder_.Select(builder_.Broadcast(real, x->shape().dims(), {d}), x, builder_.Full(x->shape(), fill));
  }
  return x;
}

Instruction* Emitter::CloneLocal(const Instruction& source, hlo::Shape shape,
                                 absl::Span<Instruction* const> operands) {
  std::unique_ptr<Instruction> clone = source.CloneWithoutOperands();
  clone->mutable_shape() = std::move(shape);
  for (hlo::Computation*& called : clone->mutable_called()) called = program_->Cloned(*called);
  clone->set_sharding(nullptr);
  hlo::EraseShardingAttributes(clone.get());
  clone->set_name(source.name());
  return builder_.computation()->Add(std::move(clone), operands);
}

Instruction* Emitter::Zero(ElementType type) { return builder_.Scalar(type, 0); }

hlo::ReplicaGroups Emitter::GroupsOf(const AxisList& axes) const {
  return ReplicaGroupsOver(mesh(), axes);
}

std::string Emitter::KeyOf(const ReshardStep& step, const LocalArray& array) {
  std::string key = absl::StrCat(static_cast<int>(step.kind), "/", step.dim, "/", step.from_dim, "/",
                                 static_cast<int>(array.sharding.unreduced_reduction), "/",
                                 absl::StrJoin(array.global.dims, "x"));
  const auto add = [&](const AxisList& axes) {
    for (const AxisRef& axis : axes) absl::StrAppend(&key, ",", axis.axis, ":", axis.pre, ":", axis.size);
    absl::StrAppend(&key, ";");
  };
  add(step.axes);
  for (const AxisList& axes : step.before) add(Merged(axes));
  for (const AxisList& axes : step.after) add(Merged(axes));
  return key;
}

bool Emitter::Repeats(const LocalArray& array) const {
  if (array.local == nullptr || !array.sharding.unreduced.empty()) return false;
  const Instruction* scalar = RepeatedValue(array.local);
  return scalar->shape().is_scalar() && !own_scalars_.contains(scalar);
}

void Emitter::TakeAsData(const Instruction* x) {
  const Instruction* scalar = RepeatedValue(x);
  if (scalar->opcode() != hlo::Opcode::kConstant) own_scalars_.insert(scalar);
}

Instruction* Emitter::Repeated(const LocalArray& array, const TensorSharding& to) {
  Dims dims = LocalDims(array.global.dims, to);
  if (dims == array.local->shape().dims()) return array.local;
  auto* scalar = const_cast<Instruction*>(RepeatedValue(array.local));  // One of this computation's, as `local` is.
  return builder_.Broadcast(scalar, std::move(dims), {});
}

double Emitter::ReshardBytes(const LocalArray& array, const TensorSharding& to) const {
  if (Repeats(array)) return 0;
  const ReshardPlan plan = PlanReshard(mesh(), array.global, array.sharding, to);
  const Instruction* at = array.local;
  double bytes = 0;
  for (const ReshardStep& step : plan.steps) {
    if (at != nullptr) {
      const auto found = steps_.find({at, KeyOf(step, array)});
      at = found == steps_.end() ? nullptr : found->second;
    }
    if (at == nullptr) bytes += step.bytes;
  }
  return bytes;
}

LocalArray Emitter::Reshard(const LocalArray& array, const TensorSharding& to, const Why& why) {
  if (loop_ != nullptr) {
    if (std::optional<LocalArray> before = loop_->Reshard(*this, array, to, why)) return *before;
  }
  const ReshardPlan plan = Repeats(array) ? ReshardPlan() : PlanReshard(mesh(), array.global, array.sharding, to);
  LocalArray at = array;
  builder_.set_template(why.op);
  if (Repeats(array)) at.local = Repeated(array, to);
  for (const ReshardStep& step : plan.steps) {
    Instruction*& made = steps_[{at.local, KeyOf(step, array)}];
    if (made == nullptr) {
      collective_ = nullptr;
      Instruction* next = EmitStep(at, step);
      if (collective_ != nullptr) Record(collective_, array, step, to, why);
      made = next;
    }
    at.local = made;
    at.sharding = WithOrigins(step.after, array.sharding, to);
    at.sharding.unreduced_reduction = array.sharding.unreduced_reduction;  // Of the reductions that may follow.
  }
  const AxisList missing = Merged(Without(mesh(), to.unreduced, array.sharding.unreduced));
  if (!missing.empty()) at.local = AsPartial(at.local, missing);
  at.sharding = to;
  for (size_t d = 0; d < to.dims.size(); ++d) {
    at.sharding.dims[d].origins = WithOrigins(DimensionAxesOf(to), to, array.sharding).dims[d].origins;
    at.sharding.dims[d].axes = Merged(to.dims[d].axes);
  }
  if (to.unreduced.empty()) at.partial = nullptr;
  return at;
}

Instruction* Emitter::AsPartial(Instruction* x, const AxisList& axes) {
  if (IsZero(*x)) return x;
  Instruction*& part = partials_[{x, axes}];
  if (part != nullptr) return part;
  Instruction* first =
      builder_.Compare(hlo::Comparison::kEq, Position(axes), builder_.Scalar(ElementType::kS32, 0));
  Instruction* everywhere = builder_.Full(hlo::Shape(ElementType::kPred, x->shape().dims()), first);
  part = builder_.Select(everywhere, x, builder_.Full(x->shape(), Zero(x->shape().type())));
  part->mutable_frontend_attributes()[hlo::kPartialAxesKey] = ToString(mesh(), axes);
  return part;
}

Instruction* Emitter::PadForSplit(const LocalArray& array, const ReshardStep& step) {
  const size_t d = step.dim;
  Instruction* x = array.local;
  const int64_t padded = ShardSize(array.global.dims[d], ShardCount(step.after[d])) * ShardCount(step.axes);
  if (x->shape().dims()[d] == padded) return x;
  std::vector<hlo::PaddingDimension> padding(x->shape().dims().size());
  padding[d].high = padded - x->shape().dims()[d];
  return builder_.Pad(x, Zero(x->shape().type()), std::move(padding));
}

Instruction* Emitter::CutPadding(Instruction* x, const LocalArray& array, int64_t dim) {
  const size_t d = dim;
  if (x->shape().dims()[d] <= array.global.dims[d]) return x;
  Dims limit = x->shape().dims();
  limit[d] = array.global.dims[d];
  return builder_.Slice(x, ZeroDims(limit.size()), limit);
}

Instruction* Emitter::EmitSlice(const LocalArray& array, const ReshardStep& step) {
  Instruction* x = PadForSplit(array, step);
  const size_t d = step.dim;
  Dims sizes = x->shape().dims();
  sizes[d] /= ShardCount(step.axes);
  Instruction* zero = Zero(ElementType::kS32);
  std::vector<Instruction*> starts(sizes.size(), zero);
  starts[d] = ShardStart(step.axes, sizes[d]);
  return builder_.DynamicSlice(x, starts, sizes);
}

// HLO's all-to-all splits and joins one dimension: the parts get a dimension of their own, which then moves in front
// of the dimension that becomes longer.
Instruction* Emitter::EmitAllToAll(const LocalArray& array, const ReshardStep& step) {
  Instruction* x = PadForSplit(array, step);
  const int64_t split = step.dim, concat = step.from_dim, n = ShardCount(step.axes);
  Dims parted = x->shape().dims();
  parted[split] /= n;
  parted.insert(parted.begin() + split, n);
  x = builder_.Reshape(x, parted);
  x = builder_.AllToAll(x, split, split, GroupsOf(step.axes), collective_id_);
  collective_ = x;
  Dims permutation;
  for (int64_t d = 0; d < std::ssize(parted); ++d) {
    const int64_t old_dim = d > split ? d - 1 : d;
    if (d == split) continue;
    if (old_dim == concat) permutation.push_back(split);
    permutation.push_back(d);
  }
  x = builder_.Transpose(x, permutation);
  Dims joined = array.local->shape().dims();
  joined[split] = parted[static_cast<size_t>(split) + 1];
  joined[concat] *= n;
  x = builder_.Reshape(x, joined);
  return step.after[concat].empty() ? CutPadding(x, array, concat) : x;
}

Instruction* Emitter::EmitPermute(const LocalArray& array, const ReshardStep& step) {
  // Devices that hold a block before, and devices that need it after, matched one to one; staying where possible.
  // Only along axes that the step has: others may be those of a manual computation around.
  AxisList moved;
  for (const DimensionAxes* placement : {&step.before, &step.after}) {
    for (const AxisList& axes : *placement) moved.insert(moved.end(), axes.begin(), axes.end());
  }
  const auto others = UnusedAxes(mesh(), moved);
  const auto block = [&](const DimensionAxes& placement, int64_t device) {
    std::vector<int64_t> result = {mesh().Position(device, others)};
    for (const AxisList& axes : placement) result.push_back(mesh().Position(device, axes));
    return result;
  };
  std::map<std::vector<int64_t>, std::pair<std::vector<int64_t>, std::vector<int64_t>>> blocks;
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t device = 0; device < mesh().devices(); ++device) {
    const auto before = block(step.before, device), after = block(step.after, device);
    if (before == after) {
      pairs.emplace_back(device, device);
      continue;
    }
    blocks[before].first.push_back(device);
    blocks[after].second.push_back(device);
  }
  for (const auto& [index, devices] : blocks) {
    const auto& [sources, targets] = devices;
    XLAD_CHECK(sources.size() == targets.size()) << "a permute that is none";
    for (size_t i = 0; i < sources.size(); ++i) pairs.emplace_back(sources[i], targets[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  collective_ = builder_.CollectivePermute(array.local, std::move(pairs), collective_id_);
  return collective_;
}

Instruction* Emitter::EmitStep(const LocalArray& array, const ReshardStep& step) {
  const auto reducer = [&] {
    return hlo::ScalarReducer(program_->module, array.sharding.unreduced_reduction, array.global.type);
  };
  if (step.kind == Kind::kSlice) return EmitSlice(array, step);
  collective_id_ = program_->next_collective_id++;
  switch (step.kind) {
    case Kind::kAllReduce:
      collective_ = builder_.AllReduce(array.local, reducer(), GroupsOf(step.axes), collective_id_);
      return collective_;
    case Kind::kReduceScatter:
      collective_ = builder_.ReduceScatter(PadForSplit(array, step), step.dim, reducer(), GroupsOf(step.axes),
                                           collective_id_);
      return collective_;
    case Kind::kAllGather:
      collective_ = builder_.AllGather(array.local, step.dim, GroupsOf(step.axes), collective_id_);
      return step.after[step.dim].empty() ? CutPadding(collective_, array, step.dim)
                                                               : collective_;
    case Kind::kAllToAll: return EmitAllToAll(array, step);
    case Kind::kPermute: return EmitPermute(array, step);
    case Kind::kSlice: break;
  }
  return nullptr;
}

}  // namespace xlad::sharding
