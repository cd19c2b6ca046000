// Writes shardings and replica groups to protos.
#include "hlo/text/named_sharding.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

using Mesh = std::vector<std::pair<std::string, int64_t>>;
using Axis = NamedSharding::Axis;

void WriteMesh(const Mesh& mesh, pb::MeshProto* out) {
  for (const auto& [name, size] : mesh) {
    pb::MeshProto::Axis* const axis = out->add_axes();
    axis->set_name(name);
    axis->set_size(size);
  }
}

void WriteAxis(const Mesh& mesh, const Axis& axis, pb::AxisRef* out) {
  for (int64_t i = 0; i < std::ssize(mesh); ++i) {
    if (mesh[i].first == axis.name) out->set_mesh_axis_index(i);
  }
  if (axis.size == 0) return;
  out->mutable_sub_axis_info()->set_pre_size(axis.pre_size);
  out->mutable_sub_axis_info()->set_size(axis.size);
}

void WriteAxes(const Mesh& mesh, const std::vector<Axis>& axes, google::protobuf::RepeatedPtrField<pb::AxisRef>* out) {
  for (const Axis& axis : axes) WriteAxis(mesh, axis, out->Add());
}

void WriteNamed(const std::string& text, pb::NamedSharding* out) {
  const std::string closed = text + "}";
  Lexer lexer(closed);
  NamedSharding named;
  if (!ParseNamedSharding(lexer, &named)) return out->set_text(text);
  WriteMesh(named.mesh, out->mutable_mesh());
  CopyInts(named.device_ids, out->mutable_mesh()->mutable_device_ids());
  if (!named.iota_reshape.empty()) {
    CopyInts(named.iota_reshape, out->mutable_mesh()->mutable_iota_transform()->mutable_reshape_dims());
    CopyInts(named.iota_transpose, out->mutable_mesh()->mutable_iota_transform()->mutable_transpose_perm());
  }
  for (const NamedSharding::Dimension& dimension : named.dims) {
    pb::NamedSharding::Dimension* const dim = out->add_dim_shardings();
    WriteAxes(named.mesh, dimension.axes, dim->mutable_axes());
    dim->set_is_closed(!dimension.open);
  }
  WriteAxes(named.mesh, named.replicated, out->mutable_replicated_axes());
  WriteAxes(named.mesh, named.unreduced, out->mutable_unreduced_axes());
  WriteAxes(named.mesh, named.manual, out->mutable_manual_axes());
  for (const Metadata& metadata : named.metadata) WriteMetadata(metadata, out->add_metadata());
  out->set_reduction_op(named.unreduced_op == "max" ? 1 : named.unreduced_op == "min" ? 2 : 0);
}

// The number in the proto of each OpSharding::Kind.
constexpr int kTypeNumbers[] = {0, 1, 4, 5, 6, 3, 2, 3};

int TypeNumber(OpSharding::Kind kind) { return kTypeNumbers[static_cast<int>(kind)]; }

}  // namespace

void WriteSharding(const OpSharding& sharding, pb::OpSharding* out) {
  if (sharding.kind == OpSharding::Kind::kNamed) return WriteNamed(sharding.named, out->mutable_named_sharding());
  out->set_type(TypeNumber(sharding.kind));
  for (const OpSharding& element : sharding.tuple) WriteSharding(element, out->add_tuple_shardings());
  CopyInts(sharding.tile_dims, out->mutable_tile_assignment_dimensions());
  CopyInts(sharding.devices, out->mutable_tile_assignment_devices());
  if (sharding.kind == OpSharding::Kind::kMaximal) out->add_tile_assignment_dimensions(1);
  CopyInts(sharding.iota_reshape_dims, out->mutable_iota_reshape_dims());
  CopyInts(sharding.iota_transpose, out->mutable_iota_transpose_perm());
  if (sharding.iota_transpose.empty()) {
    for (int i = 0; i < std::ssize(sharding.iota_reshape_dims); ++i) out->add_iota_transpose_perm(i);
  }
  out->set_replicate_on_last_tile_dim(sharding.replicate_on_last_tile_dim);
  for (const OpSharding::Kind kind : sharding.last_tile_dims) out->add_last_tile_dims(TypeNumber(kind));
  out->set_is_shard_group(sharding.group != OpSharding::Group::kNone);
  out->set_shard_group_id(sharding.group_id);
  out->set_shard_group_type(sharding.group == OpSharding::Group::kLike ? 1 : 0);
  for (const Metadata& metadata : sharding.metadata) WriteMetadata(metadata, out->add_metadata());
}

void WriteReplicaGroups(const ReplicaGroups& groups, pb::Instruction* out) {
  if (groups.iota.has_value()) {
    const ReplicaGroups::Iota& iota = *groups.iota;
    pb::IotaReplicaGroups* const list = out->mutable_iota_collective_device_list();
    list->set_num_replica_groups(iota.dims.empty() ? 0 : iota.dims.front());
    list->set_num_devices_per_group(iota.dims.empty() ? 0 : iota.dims.back());
    CopyInts(iota.reshape_dims, list->mutable_iota_reshape_dims());
    CopyInts(iota.transpose, list->mutable_iota_transpose_perm());
    if (iota.transpose.empty()) {
      for (int i = 0; i < std::ssize(iota.reshape_dims); ++i) list->add_iota_transpose_perm(i);
    }
  } else if (groups.mesh_axes.has_value()) {
    pb::MeshAxesReplicaGroups* const list = out->mutable_mesh_axes_replica_group_list();
    WriteMesh(groups.mesh_axes->mesh, list->mutable_mesh());
    CopyInts(groups.mesh_axes->device_ids, list->mutable_mesh()->mutable_device_ids());
    WriteAxes(groups.mesh_axes->mesh, groups.mesh_axes->axes, list->mutable_axes());
  } else if (!groups.groups.empty()) {
    for (const std::vector<int64_t>& group : groups.groups) {
      CopyInts(group, out->mutable_collective_device_list()->add_replica_groups()->mutable_replica_ids());
    }
  }
}

}  // namespace xlad::hlo
