// HLO text: prints shardings and replica groups in the form in which they are stored.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/index_comment.h"
#include "hlo/text/named_sharding.h"
#include "hlo/text/print.h"

namespace xlad::hlo {
namespace {

absl::string_view NameOfKind(OpSharding::Kind kind) {
  switch (kind) {
    case OpSharding::Kind::kReplicated: return "replicated";
    case OpSharding::Kind::kMaximal: return "maximal";
    case OpSharding::Kind::kManual: return "manual";
    case OpSharding::Kind::kUnreduced: return "unreduced";
    default: return "unknown";
  }
}

void AppendIotaSource(const Dims& reshape, const Dims& transpose, std::string* out) {
  absl::StrAppend(out, "<=[", absl::StrJoin(reshape, ","), "]");
  if (!transpose.empty()) absl::StrAppend(out, "T(", absl::StrJoin(transpose, ","), ")");
}

void AppendTiles(const OpSharding& sharding, std::string* out) {
  absl::StrAppend(out, "devices=[", absl::StrJoin(sharding.tile_dims, ","), "]");
  if (!sharding.iota_reshape_dims.empty()) {
    AppendIotaSource(sharding.iota_reshape_dims, sharding.iota_transpose, out);
  } else {
    absl::StrAppend(out, absl::StrJoin(sharding.devices, ","));
  }
  if (sharding.replicate_on_last_tile_dim) out->append(" last_tile_dim_replicate");
  if (!sharding.last_tile_dims.empty()) {
    const auto name = [](std::string* o, OpSharding::Kind kind) { absl::StrAppend(o, NameOfKind(kind)); };
    absl::StrAppend(out, " last_tile_dims={", absl::StrJoin(sharding.last_tile_dims, ", ", name), "}");
  }
}

void AppendSuffixes(const OpSharding& sharding, std::string* out) {
  if (sharding.group != OpSharding::Group::kNone) {
    absl::StrAppend(out, sharding.group == OpSharding::Group::kAs ? " shard_as " : " shard_like ", sharding.group_id);
  }
  if (sharding.metadata.empty()) return;
  out->append(" metadata=");
  if (sharding.metadata.size() > 1) out->push_back('{');
  for (size_t i = 0; i < sharding.metadata.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendMetadata(sharding.metadata[i], out);
  }
  if (sharding.metadata.size() > 1) out->push_back('}');
}

}  // namespace

void AppendSharding(const OpSharding& sharding, std::string* out) {
  out->push_back('{');
  switch (sharding.kind) {
    case OpSharding::Kind::kTuple:
      for (size_t i = 0; i < sharding.tuple.size(); ++i) {
        if (i > 0) out->append(", ");
        AppendIndexComment(i, out);
        AppendSharding(sharding.tuple[i], out);
      }
      break;
    case OpSharding::Kind::kNamed:
      out->append(sharding.named);
      break;
    case OpSharding::Kind::kTiled:
      AppendTiles(sharding, out);
      AppendSuffixes(sharding, out);
      break;
    default:
      absl::StrAppend(out, NameOfKind(sharding.kind));
      if (sharding.kind == OpSharding::Kind::kMaximal) {
        absl::StrAppend(out, " device=", sharding.devices.empty() ? 0 : sharding.devices.front());
      }
      AppendSuffixes(sharding, out);
  }
  out->push_back('}');
}

void AppendReplicaGroups(const ReplicaGroups& groups, std::string* out) {
  if (groups.iota.has_value()) {
    absl::StrAppend(out, "[", absl::StrJoin(groups.iota->dims, ","), "]");
    return AppendIotaSource(groups.iota->reshape_dims, groups.iota->transpose, out);
  }
  if (groups.mesh_axes.has_value()) {
    const ReplicaGroups::MeshAxes& mesh = *groups.mesh_axes;
    AppendMesh(mesh.mesh, out);
    if (!mesh.device_ids.empty()) absl::StrAppend(out, ", device_ids=(", absl::StrJoin(mesh.device_ids, ","), ")");
    out->push_back(' ');
    AppendAxes(mesh.axes, out);
    return;
  }
  out->push_back('{');
  for (size_t i = 0; i < groups.groups.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendInts(groups.groups[i], out);
  }
  out->push_back('}');
}

}  // namespace xlad::hlo
