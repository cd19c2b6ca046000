// Reads shardings and replica groups from protos. They are converted to text and parsed, so that the checks of the
// parser are not duplicated here.
#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "hlo/text/named_sharding.h"
#include "hlo/text/parse.h"
#include "hlo/text/print.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

using Mesh = std::vector<std::pair<std::string, int64_t>>;
using Axis = NamedSharding::Axis;

void ReadMesh(const pb::MeshProto& in, NamedSharding* named) {
  for (const pb::MeshProto::Axis& axis : in.axes()) named->mesh.emplace_back(axis.name(), axis.size());
  named->device_ids = ToDims(in.device_ids());
  named->iota_reshape = ToDims(in.iota_transform().reshape_dims());
  named->iota_transpose = ToDims(in.iota_transform().transpose_perm());
}

absl::Status ReadAxes(const google::protobuf::RepeatedPtrField<pb::AxisRef>& in, const Mesh& mesh,
                      std::vector<Axis>* axes) {
  for (const pb::AxisRef& ref : in) {
    if (ref.mesh_axis_index() < 0 || ref.mesh_axis_index() >= std::ssize(mesh)) {
      const std::string numbers = mesh.empty() ? "none" : absl::StrCat("0 to ", std::ssize(mesh) - 1);
      return absl::InvalidArgumentError(
          absl::StrCat("found mesh axis number ", ref.mesh_axis_index(), ", expected ", numbers));
    }
    Axis& axis = axes->emplace_back();
    axis.name = mesh[ref.mesh_axis_index()].first;
    if (!ref.has_sub_axis_info()) continue;
    axis.pre_size = ref.sub_axis_info().pre_size();
    axis.size = ref.sub_axis_info().size();
  }
  return absl::OkStatus();
}

// Parses `text` with `parse`. The error quotes the first 200 characters of `text`, and its line and column refer to
// `text`, because `text` is not part of the input.
template <typename Parse>
absl::Status ReadAsText(absl::string_view what, const std::string& text, const Parse& parse) {
  Lexer lexer(text);
  if (parse(lexer) && lexer.AtEnd() && !lexer.failed()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found ", what, " ", absl::CEscape(text.substr(0, 200)),
                                                 lexer.failed() ? " (" : "", lexer.status().message(),
                                                 lexer.failed() ? ")" : ""));
}

absl::Status ReadNamed(const pb::NamedSharding& in, OpSharding* sharding) {
  NamedSharding named;
  ReadMesh(in.mesh(), &named);
  for (const pb::NamedSharding::Dimension& dim : in.dim_shardings()) {
    NamedSharding::Dimension& dimension = named.dims.emplace_back();
    XLAD_RETURN_IF_ERROR(ReadAxes(dim.axes(), named.mesh, &dimension.axes));
    dimension.open = !dim.is_closed();
  }
  XLAD_RETURN_IF_ERROR(ReadAxes(in.replicated_axes(), named.mesh, &named.replicated));
  XLAD_RETURN_IF_ERROR(ReadAxes(in.unreduced_axes(), named.mesh, &named.unreduced));
  XLAD_RETURN_IF_ERROR(ReadAxes(in.manual_axes(), named.mesh, &named.manual));
  if (in.reduction_op() < 0 || in.reduction_op() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("found reduction_op ", in.reduction_op(), " of a sharding, expected 0 (sum), 1 (max) or 2 (min)"));
  }
  if (in.reduction_op() != 0) named.unreduced_op = in.reduction_op() == 1 ? "max" : "min";
  for (pb::Metadata metadata : in.metadata()) ReadMetadata(&metadata, &named.metadata.emplace_back());
  const std::string text = absl::StrCat("{", in.text().empty() ? PrintNamedSharding(named) : in.text(), "}");
  return ReadAsText("sharding", text, [&](Lexer& lexer) { return ParseSharding(lexer, sharding); });
}

constexpr OpSharding::Kind kWireKinds[] = {
    OpSharding::Kind::kReplicated, OpSharding::Kind::kMaximal, OpSharding::Kind::kTuple,    OpSharding::Kind::kTiled,
    OpSharding::Kind::kManual,     OpSharding::Kind::kUnknown, OpSharding::Kind::kUnreduced};

absl::StatusOr<OpSharding::Kind> KindOf(int type) {
  if (type >= 0 && type < std::ssize(kWireKinds)) return kWireKinds[type];
  return absl::InvalidArgumentError(absl::StrCat("found sharding type ", type, ", expected 0 to 6"));
}

// A transposition of a single dimension is the identity, so it is omitted.
Dims Transpose(const google::protobuf::RepeatedField<int32_t>& in) { return in.size() > 1 ? ToDims(in) : Dims(); }

// Fills in the parts of a sharding that is not a tuple, without checks.
absl::Status FillSingle(const pb::OpSharding& in, OpSharding* sharding) {
  const bool tiled = sharding->kind == OpSharding::Kind::kTiled;
  if (tiled || sharding->kind == OpSharding::Kind::kMaximal) sharding->devices = ToDims(in.tile_assignment_devices());
  if (tiled) {
    sharding->tile_dims = ToDims(in.tile_assignment_dimensions());
    sharding->iota_reshape_dims = ToDims(in.iota_reshape_dims());
    sharding->iota_transpose = Transpose(in.iota_transpose_perm());
    sharding->replicate_on_last_tile_dim = in.replicate_on_last_tile_dim();
  }
  for (const int type : in.last_tile_dims()) {
    XLAD_ASSIGN_OR_RETURN(const OpSharding::Kind kind, KindOf(type));
    sharding->last_tile_dims.push_back(kind);
  }
  if (in.is_shard_group()) {
    if (in.shard_group_type() < 0 || in.shard_group_type() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("found shard_group_type ", in.shard_group_type(), ", expected 0 (as) or 1 (like)"));
    }
    sharding->group = in.shard_group_type() == 1 ? OpSharding::Group::kLike : OpSharding::Group::kAs;
    sharding->group_id = in.shard_group_id();
  }
  for (pb::Metadata metadata : in.metadata()) ReadMetadata(&metadata, &sharding->metadata.emplace_back());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadSharding(const pb::OpSharding& in, OpSharding* sharding) {
  if (in.has_named_sharding()) return ReadNamed(in.named_sharding(), sharding);
  XLAD_ASSIGN_OR_RETURN(sharding->kind, KindOf(in.type()));
  if (sharding->kind == OpSharding::Kind::kTuple) {
    for (const pb::OpSharding& element : in.tuple_shardings()) {
      XLAD_RETURN_IF_ERROR(ReadSharding(element, &sharding->tuple.emplace_back()));
    }
    return absl::OkStatus();
  }
  OpSharding unchecked;
  unchecked.kind = sharding->kind;
  XLAD_RETURN_IF_ERROR(FillSingle(in, &unchecked));
  std::string text;
  AppendSharding(unchecked, &text);
  return ReadAsText("sharding", text, [&](Lexer& lexer) { return ParseSharding(lexer, sharding); });
}

absl::Status ReadReplicaGroups(const pb::Instruction& in, ReplicaGroups* groups) {
  const bool old_iota = in.collective_device_list().has_iota_replica_group_list();
  std::string text;
  if (in.has_mesh_axes_replica_group_list()) {
    NamedSharding named;
    std::vector<Axis> axes;
    ReadMesh(in.mesh_axes_replica_group_list().mesh(), &named);
    XLAD_RETURN_IF_ERROR(ReadAxes(in.mesh_axes_replica_group_list().axes(), named.mesh, &axes));
    AppendMesh(named.mesh, &text);
    AppendDeviceIds(named, &text);
    text.push_back(' ');
    AppendAxes(axes, &text);
  } else if (in.has_iota_collective_device_list() || old_iota) {
    const pb::IotaReplicaGroups& list =
        old_iota ? in.collective_device_list().iota_replica_group_list() : in.iota_collective_device_list();
    ReplicaGroups unchecked;
    ReplicaGroups::Iota& iota = unchecked.iota.emplace();
    iota.dims = {list.num_replica_groups(), list.num_devices_per_group()};
    iota.reshape_dims = ToDims(list.iota_reshape_dims());
    iota.transpose = Transpose(list.iota_transpose_perm());
    AppendReplicaGroups(unchecked, &text);
  } else {
    const bool newer = in.collective_device_list().replica_groups_size() > 0;
    for (const pb::ReplicaGroup& group : newer ? in.collective_device_list().replica_groups() : in.replica_groups()) {
      groups->groups.push_back(ToDims(group.replica_ids()));
    }
    return absl::OkStatus();
  }
  return ReadAsText("replica groups", text, [&](Lexer& lexer) { return ParseReplicaGroups(lexer, groups); });
}

}  // namespace xlad::hlo
