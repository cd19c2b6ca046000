#include "sharding/partition/reshard_emitter.h"

#include <algorithm>

#include "hlo/analysis/constants.h"
#include "hlo/attribute_keys.h"
#include "sharding/partition/identity.h"
#include "sharding/partition/loop_invariants.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

using Kind = ReshardStep::Kind;
using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

DimensionAxes MergedDims(const DimensionAxes& dims) {
  DimensionAxes merged;
  for (const AxisList& axes : dims) merged.push_back(Merged(axes));
  return merged;
}

bool IsBitwise(ElementType type) { return type == ElementType::kPred || tensor::IsInteger(type); }

Instruction* BitcastConvert(hlo::Builder& builder, Instruction* x, ElementType type) {
  Instruction* bits = builder.computation()->Add(
      std::make_unique<Instruction>(Opcode::kBitcastConvert, hlo::Shape(type, x->shape().dims())), {x});
  bits->mutable_frontend_attributes()[hlo::kMovesBitsKey] = "1";
  return bits;
}

// The bits of a float array as unsigned integers. The result for a complex array has a new major dimension of size 2:
// the bits of the real parts, then those of the imaginary parts.
Instruction* ToBits(hlo::Builder& builder, Instruction* x) {
  const ElementType type = x->shape().type();
  if (tensor::IsComplex(type)) {
    Dims one = x->shape().dims();
    one.insert(one.begin(), 1);
    x = builder.Concatenate({builder.Reshape(builder.Unary(Opcode::kReal, x), one),
                             builder.Reshape(builder.Unary(Opcode::kImag, x), one)},
                            0);
  }
  return BitcastConvert(builder, x, tensor::UnsignedOfWidth(tensor::BitWidth(x->shape().type())));
}

Instruction* FromBits(hlo::Builder& builder, Instruction* bits, ElementType type) {
  if (!tensor::IsComplex(type)) return BitcastConvert(builder, bits, type);
  Instruction* parts = BitcastConvert(builder, bits, tensor::RealPartOf(type));
  return builder.Binary(Opcode::kComplex, builder.Element(parts, 0), builder.Element(parts, 1));
}

// Matches the devices that hold a block before a permute one to one with the devices that need it afterwards. A device
// that needs the block that it holds keeps it. The devices of a pair differ only along axes of the step, and therefore
// not along the axes of an enclosing manual computation.
std::vector<std::pair<int64_t, int64_t>> PermutePairs(const Mesh& mesh, const ReshardStep& step) {
  AxisList moved;
  for (const DimensionAxes* dims : {&step.before, &step.after}) {
    for (const AxisList& axes : *dims) moved.insert(moved.end(), axes.begin(), axes.end());
  }
  const AxisList others = UnusedAxes(mesh, moved);
  const auto block = [&](const DimensionAxes& dims, int64_t device) {
    std::vector<int64_t> result = {mesh.Position(device, others)};
    for (const AxisList& axes : dims) result.push_back(mesh.Position(device, axes));
    return result;
  };
  struct Devices {
    std::vector<int64_t> sources, targets;
  };
  std::map<std::vector<int64_t>, Devices> blocks;
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t device = 0; device < mesh.devices(); ++device) {
    const auto before = block(step.before, device), after = block(step.after, device);
    if (before == after) {
      pairs.emplace_back(device, device);
      continue;
    }
    blocks[before].sources.push_back(device);
    blocks[after].targets.push_back(device);
  }
  for (const auto& [index, devices] : blocks) {
    XLAD_CHECK(devices.sources.size() == devices.targets.size()) << "source and target counts of a permute differ";
    for (size_t i = 0; i < devices.sources.size(); ++i) {
      pairs.emplace_back(devices.sources[i], devices.targets[i]);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

ReshardEmitter::StepKey ReshardEmitter::KeyOf(const LocalArray& array, const Instruction* from,
                                              const ReshardStep& step) {
  return {from, step.kind, step.dim, step.from_dim, array.sharding.unreduced_reduction, array.global.dims,
          step.axes, MergedDims(step.before), MergedDims(step.after)};
}

bool ReshardEmitter::IsUniform(const LocalArray& array) const {
  if (array.local == nullptr || !array.sharding.unreduced.empty()) return false;
  const Instruction* scalar = hlo::RepeatedValue(array.local);
  return scalar->shape().is_scalar() && !non_uniform_.contains(scalar);
}

void ReshardEmitter::MarkNonUniform(const Instruction* x) {
  const Instruction* scalar = hlo::RepeatedValue(x);
  if (scalar->opcode() != Opcode::kConstant) non_uniform_.insert(scalar);
}

Instruction* ReshardEmitter::EmitUniform(const LocalArray& array, const TensorSharding& to) {
  Dims dims = LocalDims(array.global.dims, to);
  if (dims == array.local->shape().dims()) return array.local;
  // The const_cast is safe because the scalar, like `local`, is an instruction of this computation.
  return builder_.Broadcast(const_cast<Instruction*>(hlo::RepeatedValue(array.local)), std::move(dims), {});
}

double ReshardEmitter::ReshardBytes(const LocalArray& array, const TensorSharding& to) const {
  if (IsUniform(array)) return 0;
  const Instruction* at = array.local;
  double bytes = 0;
  for (const ReshardStep& step : PlanReshard(local_.mesh(), array.global, array.sharding, to).steps) {
    if (at != nullptr) {
      const auto found = steps_.find(KeyOf(array, at, step));
      at = found == steps_.end() ? nullptr : found->second;
    }
    if (at == nullptr) bytes += step.bytes;
  }
  return bytes;
}

LocalArray ReshardEmitter::Reshard(const LocalArray& array, const TensorSharding& to, const ReshardCause& cause) {
  if (loop_ != nullptr) {
    if (std::optional<LocalArray> invariant = loop_->Reshard(*this, array, to, cause)) return *invariant;
  }
  builder_.set_template(cause.op);
  LocalArray at = array;
  ReshardPlan plan;
  if (IsUniform(array)) {
    at.local = EmitUniform(array, to);
  } else {
    plan = PlanReshard(local_.mesh(), array.global, array.sharding, to);
  }
  for (const ReshardStep& step : plan.steps) {
    Instruction*& emitted = steps_[KeyOf(array, at.local, step)];
    if (emitted == nullptr) {
      const EmittedStep next = EmitStep(at, step);
      if (next.collective != nullptr) local_.context().recorder().Record(next.collective, {array, step, to, cause});
      emitted = next.result;
    }
    at.local = emitted;
    at.sharding = WithOrigins(step.after, array.sharding, to);
    at.sharding.unreduced_reduction = array.sharding.unreduced_reduction;  // Later reductions of the plan need it.
  }
  const AxisList missing = Merged(Without(local_.mesh(), to.unreduced, array.sharding.unreduced));
  if (!missing.empty()) at.local = EmitAsPartial(at.local, missing);
  at.sharding = WithOrigins(DimensionAxesOf(to), to, array.sharding);
  at.sharding.unreduced = to.unreduced;
  at.sharding.unreduced_reduction = to.unreduced_reduction;
  if (to.unreduced.empty()) at.partial = nullptr;
  return at;
}

Instruction* ReshardEmitter::EmitAsPartial(Instruction* x, const AxisList& axes) {
  if (IsZero(*x)) return x;
  Instruction*& part = partials_[{x, axes}];
  if (part != nullptr) return part;
  Instruction* first = builder_.Full(hlo::Shape(ElementType::kPred, x->shape().dims()), local_.IsFirst(axes));
  Instruction* identity = IdentityOf(builder_, Opcode::kAdd, x->shape().type());
  part = builder_.Select(first, x, builder_.Full(x->shape(), identity));
  part->mutable_frontend_attributes()[hlo::kPartialAxesKey] = ToString(local_.mesh(), axes);
  return part;
}

Instruction* ReshardEmitter::PadForSplit(const LocalArray& array, const ReshardStep& step) {
  Instruction* x = array.local;
  const int64_t size = x->shape().dims()[step.dim];
  const int64_t padded =
      ShardSize(array.global.dims[step.dim], ShardCount(step.after[step.dim])) * ShardCount(step.axes);
  if (size == padded) return x;
  std::vector<hlo::PaddingDimension> padding(x->shape().dims().size());
  padding[step.dim].high = padded - size;
  return builder_.Pad(x, builder_.Scalar(x->shape().type(), 0), std::move(padding));
}

Instruction* ReshardEmitter::CutPadding(Instruction* x, const LocalArray& array, int64_t dim) {
  if (x->shape().dims()[dim] <= array.global.dims[dim]) return x;
  Dims limit = x->shape().dims();
  limit[dim] = array.global.dims[dim];
  return builder_.Slice(x, Dims(limit.size(), 0), limit);
}

Instruction* ReshardEmitter::EmitSlice(const LocalArray& array, const ReshardStep& step) {
  Instruction* x = PadForSplit(array, step);
  Dims sizes = x->shape().dims();
  sizes[step.dim] /= ShardCount(step.axes);
  Instruction* start = local_.ShardStart(step.axes, sizes[step.dim]);
  std::vector<Instruction*> starts(sizes.size(), builder_.Scalar(start->shape().type(), 0));
  starts[step.dim] = start;
  return builder_.DynamicSlice(x, starts, sizes);
}

// Emits an all-reduce or a reduce-scatter. An or of floats (see DynamicSliceRule) is computed on their bits.
ReshardEmitter::EmittedStep ReshardEmitter::EmitReduction(const LocalArray& array, const ReshardStep& step) {
  const bool scatters = step.kind == Kind::kReduceScatter;
  const ElementType type = array.global.type;
  const Opcode reduction = array.sharding.unreduced_reduction;
  const bool as_bits = reduction == Opcode::kOr && !IsBitwise(type);
  Instruction* x = scatters ? PadForSplit(array, step) : array.local;
  if (as_bits) x = ToBits(builder_, x);
  hlo::Computation* reducer = hlo::ScalarReducer(local_.context().module(), reduction, x->shape().type());
  const hlo::ReplicaGroups groups = ReplicaGroupsOver(local_.mesh(), step.axes);
  const int64_t channel = ChannelOf(local_.context().recorder().NewId());
  const int64_t new_dims = x->shape().ndim() - array.local->shape().ndim();
  Instruction* collective = scatters ? builder_.ReduceScatter(x, step.dim + new_dims, reducer, groups, channel)
                                     : builder_.AllReduce(x, reducer, groups, channel);
  return {as_bits ? FromBits(builder_, collective, type) : collective, collective};
}

ReshardEmitter::EmittedStep ReshardEmitter::EmitAllGather(const LocalArray& array, const ReshardStep& step) {
  Instruction* gathered =
      builder_.AllGather(array.local, step.dim, ReplicaGroupsOver(local_.mesh(), step.axes),
                         ChannelOf(local_.context().recorder().NewId()));
  return {step.after[step.dim].empty() ? CutPadding(gathered, array, step.dim) : gathered, gathered};
}

// The emitted all-to-all splits and concatenates the same dimension. The split dimension is therefore reshaped to
// (parts, rest) first. Afterwards the dimension of the parts is moved before the dimension that becomes longer.
ReshardEmitter::EmittedStep ReshardEmitter::EmitAllToAll(const LocalArray& array, const ReshardStep& step) {
  Instruction* x = PadForSplit(array, step);
  const int64_t split = step.dim, concat = step.from_dim, n = ShardCount(step.axes);
  x = builder_.SplitDimension(x, split, n);
  const Dims parted = x->shape().dims();
  Instruction* collective = builder_.AllToAll(x, split, split, ReplicaGroupsOver(local_.mesh(), step.axes),
                                              ChannelOf(local_.context().recorder().NewId()));
  Dims permutation;
  for (int64_t d = 0; d < std::ssize(parted); ++d) {
    const int64_t old_dim = d > split ? d - 1 : d;
    if (d == split) continue;
    if (old_dim == concat) permutation.push_back(split);
    permutation.push_back(d);
  }
  x = builder_.Transpose(collective, permutation);
  Dims joined = array.local->shape().dims();
  joined[split] = parted[split + 1];
  joined[concat] *= n;
  x = builder_.Reshape(x, joined);
  return {step.after[concat].empty() ? CutPadding(x, array, concat) : x, collective};
}

ReshardEmitter::EmittedStep ReshardEmitter::EmitPermute(const LocalArray& array, const ReshardStep& step) {
  Instruction* permuted = builder_.CollectivePermute(array.local, PermutePairs(local_.mesh(), step),
                                                     ChannelOf(local_.context().recorder().NewId()));
  return {permuted, permuted};
}

ReshardEmitter::EmittedStep ReshardEmitter::EmitStep(const LocalArray& array, const ReshardStep& step) {
  switch (step.kind) {
    case Kind::kSlice: return {EmitSlice(array, step), nullptr};
    case Kind::kAllReduce:
    case Kind::kReduceScatter: return EmitReduction(array, step);
    case Kind::kAllGather: return EmitAllGather(array, step);
    case Kind::kAllToAll: return EmitAllToAll(array, step);
    case Kind::kPermute: return EmitPermute(array, step);
  }
  return {};
}

}  // namespace xlad::sharding
