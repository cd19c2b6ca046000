// Manual computations (jax.shard_map): inside, arrays are one manual shard, split over the free axes only, and the
// user's own collectives stand among the instructions.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/attribute_keys.h"
#include "sharding/partition/partitioner.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;


// How the outside of a border is split: for each dimension the manual axes of `outside`, then the free ones of
// `inside`.
TensorSharding Outside(const hlo::Shape& global, const hlo::Shape& local, const TensorSharding& outside,
                       const TensorSharding& inside) {
  TensorSharding result = inside;
  for (size_t d = 0; d < result.dims.size(); ++d) {
    int64_t shards = local.dims()[d] == 0 ? 1 : global.dims()[d] / local.dims()[d];
    DimensionSharding dim;
    const DimensionSharding& from = outside.dims[d];
    for (size_t i = 0; i < from.axes.size() && shards > 1; ++i) {
      shards /= from.axes[i].size;
      dim.axes.push_back(from.axes[i]);
      dim.origins.push_back(i < from.origins.size() ? from.origins[i] : nullptr);
    }
    const DimensionSharding& free = inside.dims[d];
    for (size_t i = 0; i < free.axes.size(); ++i) {
      dim.axes.push_back(free.axes[i]);
      dim.origins.push_back(i < free.origins.size() ? free.origins[i] : nullptr);
    }
    result.dims[d] = std::move(dim);
  }
  return result;
}

// The free part of a sharding outside.
TensorSharding Inside(const hlo::Shape& global, const hlo::Shape& local, const TensorSharding& outside) {
  TensorSharding result = outside;
  for (size_t d = 0; d < result.dims.size(); ++d) {
    int64_t shards = local.dims()[d] == 0 ? 1 : global.dims()[d] / local.dims()[d];
    DimensionSharding& dim = result.dims[d];
    while (shards > 1 && !dim.axes.empty()) {
      shards /= dim.axes.front().size;
      dim.axes.erase(dim.axes.begin());
      if (!dim.origins.empty()) dim.origins.erase(dim.origins.begin());
    }
  }
  return result;
}

// Without the free axes that do not divide a manual shard: counted from the begin of each shard, their parts are others
// than counted from the begin of the array.
TensorSharding Even(const hlo::Shape& global, const hlo::Shape& local, TensorSharding inside) {
  for (size_t d = 0; d < inside.dims.size(); ++d) {
    DimensionSharding& dim = inside.dims[d];
    const bool split = global.dims()[d] != local.dims()[d];
    if (!split || local.dims()[d] % ShardCount(dim.axes) == 0) continue;
    dim.axes.clear();
    dim.origins.clear();
  }
  return inside;
}

}  // namespace

bool IsInManualComputation(const Instruction& instruction) {
  return hlo::FindAttribute(instruction, hlo::kManualAxesKey) != nullptr;
}

// Every device keeps what it has and reads it differently.
absl::Status Partitioner::VisitManualBorder(const Instruction& instruction) {
  const bool enters = IsCustomCall(instruction, hlo::kEnterManualCall);
  const Instruction& operand = *instruction.operand(0);
  if (!instruction.shape().is_array() || !operand.shape().is_array()) {
    return absl::InternalError(
        absl::StrCat(instruction.name(), ": the border of a manual computation is not one array"));
  }
  const hlo::Shape& global = enters ? operand.shape() : instruction.shape();
  const hlo::Shape& local = enters ? instruction.shape() : operand.shape();
  const TensorSharding wanted = Wanted(instruction)[0];
  const TensorSharding inside = Even(global, local, enters ? wanted : Inside(global, local, wanted));
  const TensorSharding outside = Outside(global, local, enters ? Wanted(operand)[0] : wanted, inside);
  const auto why = [&](const TensorSharding& sharding) {
    return Why{&instruction, absl::StrCat(enters ? "a manual computation takes it as "
                                                 : "a manual computation gives it back as ",
                                          ToString(program_.mesh(), sharding))};
  };
  const TensorSharding& needed = enters ? outside : inside;
  LocalArray value = emitter_.Reshard(Operands(instruction)[0], needed, why(needed));
  if (!enters) emitter_.TakeAsData(value.local);
  value.global = instruction.shape().array();
  value.sharding = enters ? inside : outside;
  if (value.local->shape().dims() != LocalShape(value).dims()) {
    return absl::InternalError(absl::StrCat(instruction.name(), ": the border of a manual computation has ",
                                            value.local->shape().ToString(false), " on a device, expected ",
                                            LocalShape(value).ToString(false)));
  }
  values_[&instruction] = {emitter_.Reshard(value, wanted, why(wanted))};
  return absl::OkStatus();
}

// The position of a device is the same inside and outside.
absl::Status Partitioner::VisitPartitionId(const Instruction& instruction) {
  LocalArray value;
  value.local = emitter_.CloneLocal(instruction, instruction.shape(), {});
  value.global = instruction.shape().array();
  value.sharding = TensorSharding::Replicated(0);
  values_[&instruction] = {std::move(value)};
  return absl::OkStatus();
}

// The user's own collective: groups written out, a channel of its own.
static void TakeOverCollective(ProgramInProgress& program, const Instruction& source, Instruction* local) {
  hlo::Attributes& attributes = local->mutable_attributes();
  const Mesh& mesh = program.mesh();
  CollectiveInfo info;
  info.collective_id = program.next_collective_id++;
  info.kind = std::string(hlo::ToString(source.opcode()));
  info.op = source.name();
  info.written_by_user = true;
  const std::string place = program.source->module->SourceOf(source);
  info.because = {absl::StrCat(source.name(), ": written in a manual computation",
                               place.empty() ? "" : absl::StrCat(" (", place, ")"))};
  std::vector<std::pair<int64_t, int64_t>> apart = attributes.source_target_pairs;
  if (source.opcode() != Opcode::kCollectivePermute) {
    hlo::ReplicaGroups groups;
    groups.groups = attributes.replica_groups.Expand(mesh.devices());
    attributes.replica_groups = groups;
    for (const auto& group : groups.groups) {
      for (int64_t device : group) apart.emplace_back(group[0], device);
    }
  }
  for (int axis = 0; axis < std::ssize(mesh.axes()); ++axis) {
    const AxisList one = {mesh.Whole(axis)};
    const bool crosses = std::any_of(apart.begin(), apart.end(), [&](const auto& pair) {
      return mesh.Position(pair.first, one) != mesh.Position(pair.second, one);
    });
    if (crosses) info.axes.push_back(one[0]);
  }
  attributes.channel_id = info.collective_id;
  hlo::WriteOrigin({ToString(mesh, info.axes), {info.op}, info.because}, local);
  program.collectives.push_back(std::move(info));
}

// Along free axes its dimensions pass through, except those that it splits or joins.
absl::Status EmitCollective(Emitter& emitter, LocalOp& op) {
  Instruction* local = emitter.CloneLocal(*op.source, LocalResultShape(op), Locals(op.operands));
  TakeOverCollective(emitter.program(), *op.source, local);
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
