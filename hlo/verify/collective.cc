// Verifier rules on the devices that take part in a collective.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"
#include "hlo/replica_groups.h"
#include "hlo/verify/rules.h"

namespace xlad::hlo {
namespace {

// The number of valid ids (replicas, partitions or devices). Returns 0 if the module's header has one replica and one
// partition and thus does not determine the number.
int64_t IdCount(const Instruction& instruction) {
  const Module& module = *instruction.parent()->parent();
  if (module.replica_count * module.num_partitions == 1) return 0;
  switch (IdsOf(instruction)) {
    case GroupIds::kReplica:
    case GroupIds::kReplicaAllPartitions:
      return module.replica_count;
    case GroupIds::kPartition:
      return module.num_partitions;
    case GroupIds::kGlobal:
      break;
  }
  return module.replica_count * module.num_partitions;
}

absl::StatusOr<int64_t> GroupProduct(const Dims& sizes) {
  if (const std::optional<int64_t> product = DeviceProduct(sizes)) return *product;
  return Violation("replica-groups-size", absl::StrCat("sizes ", Brief(sizes)),
                   absl::StrCat("1 or more each, and at most ", kMaxDevices, " devices"));
}

absl::Status CheckIota(const ReplicaGroups::Iota& iota) {
  XLAD_ASSIGN_OR_RETURN(const int64_t total, GroupProduct(iota.dims));
  XLAD_ASSIGN_OR_RETURN(const int64_t reshaped, GroupProduct(iota.reshape_dims));
  if (iota.dims.size() != 2 || total != reshaped) {
    return Violation("replica-groups-iota", absl::StrCat(Brief(iota.dims), " of ", Brief(iota.reshape_dims)),
                     "[groups,size] with the same product");
  }
  if (iota.transpose.empty()) return absl::OkStatus();
  if (iota.transpose.size() != iota.reshape_dims.size()) {
    return Violation("replica-groups-iota", absl::StrCat("transpose ", Brief(iota.transpose)),
                     absl::StrCat("a permutation of ", iota.reshape_dims.size()));
  }
  return ExpectDimensions("replica-groups-iota", iota.transpose, std::ssize(iota.reshape_dims));
}

absl::Status CheckMeshAxes(const ReplicaGroups::MeshAxes& mesh_axes) {
  Dims sizes;
  for (const auto& [name, size] : mesh_axes.mesh) {
    sizes.push_back(size);
    const auto same = std::count_if(mesh_axes.mesh.begin(), mesh_axes.mesh.end(),
                                    [&name = name](const auto& axis) { return axis.first == name; });
    if (same > 1) return Violation("replica-groups-mesh", absl::StrCat("axis '", name, "' twice"), "each once");
  }
  XLAD_ASSIGN_OR_RETURN(const int64_t devices, GroupProduct(sizes));
  if (!mesh_axes.device_ids.empty() && std::ssize(mesh_axes.device_ids) != devices) {
    return Violation("replica-groups-mesh", Counted(mesh_axes.device_ids.size(), "device id"), absl::StrCat(devices));
  }
  Dims parts;
  for (const auto& axis : mesh_axes.axes) {
    const auto found = std::find_if(mesh_axes.mesh.begin(), mesh_axes.mesh.end(),
                                    [&](const auto& candidate) { return candidate.first == axis.name; });
    if (found == mesh_axes.mesh.end()) {
      return Violation("replica-groups-mesh", absl::StrCat("axis '", axis.name, "'"), "an axis of the mesh");
    }
    if (axis.size < 0 || axis.pre_size < 1 || axis.size > kMaxDevices || axis.pre_size > kMaxDevices ||
        (axis.size > 0 && found->second % (axis.size * axis.pre_size) != 0)) {
      return Violation("replica-groups-mesh", absl::StrCat("'", axis.name, "':(", axis.pre_size, ")", axis.size),
                       absl::StrCat("a part that divides the axis's size ", found->second));
    }
    parts.push_back(axis.size == 0 ? found->second : axis.size);
  }
  XLAD_RETURN_IF_ERROR(GroupProduct(parts).status());
  if (!AxesFit(mesh_axes)) {
    return Violation("replica-groups-mesh", "axes that overlap", "disjoint parts of axes");
  }
  return absl::OkStatus();
}

absl::Status CheckForms(const ReplicaGroups& groups) {
  const int forms =
      (groups.groups.empty() ? 0 : 1) + (groups.iota.has_value() ? 1 : 0) + (groups.mesh_axes.has_value() ? 1 : 0);
  if (forms > 1) return Violation("replica-groups", "several forms at once", "one");
  if (groups.iota.has_value()) return CheckIota(*groups.iota);
  if (groups.mesh_axes.has_value()) return CheckMeshAxes(*groups.mesh_axes);
  return absl::OkStatus();
}

bool MayBeUneven(Opcode opcode) {
  return opcode == Opcode::kAllReduce || opcode == Opcode::kAllReduceStart || opcode == Opcode::kCollectiveBroadcast ||
         opcode == Opcode::kCollectiveReduce;
}

absl::Status CheckCover(int64_t covered, int64_t count, Opcode opcode) {
  if (count <= 1 || covered == count || opcode == Opcode::kCollectiveBroadcast) return absl::OkStatus();
  return Violation("replica-groups-cover", absl::StrCat("groups of ", covered, " ids"), absl::StrCat("all ", count));
}

// Checks groups that are a permutation of the ids 0 to `ids` - 1. There may be millions of ids, so the groups are
// not expanded.
absl::Status CheckPermutation(int64_t ids, int64_t count, Opcode opcode) {
  if (count > 1 && ids > count) {
    return Violation("replica-groups-id", absl::StrCat("id ", ids - 1), absl::StrCat("0 to ", count - 1));
  }
  return CheckCover(ids, count, opcode);
}

int64_t DevicesOf(const ReplicaGroups::MeshAxes& mesh_axes) {
  int64_t devices = 1;
  for (const auto& [name, size] : mesh_axes.mesh) devices *= size;
  return devices;
}

absl::Status CheckGroups(const Instruction& instruction) {
  const ReplicaGroups& groups = instruction.attributes().replica_groups;
  XLAD_RETURN_IF_ERROR(CheckForms(groups));
  if (groups.groups.empty() && !groups.iota.has_value() && !groups.mesh_axes.has_value()) return absl::OkStatus();
  const int64_t count = IdCount(instruction);
  if (groups.iota.has_value()) return CheckPermutation(tensor::Product(groups.iota->dims), count, instruction.opcode());
  if (groups.mesh_axes.has_value() && groups.mesh_axes->device_ids.empty()) {
    return CheckPermutation(DevicesOf(*groups.mesh_axes), count, instruction.opcode());
  }
  // The remaining forms list their ids in the program, so expanding them is cheap.
  const std::vector<std::vector<int64_t>> lists = groups.Expand(count);
  absl::flat_hash_set<int64_t> seen;
  for (const std::vector<int64_t>& group : lists) {
    if (group.empty()) return Violation("replica-groups-size", "an empty group", "at least one id in each group");
    if (!MayBeUneven(instruction.opcode()) && group.size() != lists[0].size()) {
      return Violation("replica-groups-size",
                       absl::StrCat("a group of ", group.size(), " and one of ", lists[0].size()),
                       "groups of equal sizes");
    }
    for (const int64_t id : group) {
      if (id < 0 || (count > 1 && id >= count) || id >= kMaxDevices) {
        return Violation("replica-groups-id", absl::StrCat("id ", id),
                         absl::StrCat("0 to ", (count > 1 ? count : kMaxDevices) - 1));
      }
      if (!seen.insert(id).second) return Violation("replica-groups-id", absl::StrCat("id ", id, " twice"), "once");
    }
  }
  return CheckCover(std::ssize(seen), count, instruction.opcode());
}

absl::Status CheckPairs(const Instruction& instruction) {
  const int64_t count = IdCount(instruction);
  absl::flat_hash_set<int64_t> sources, targets;
  // The in-place form may list a pair several times, for several slices.
  const bool in_place = instruction.operand_count() == 4;
  for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
    for (const int64_t id : {source, target}) {
      if (id < 0 || (count > 1 && id >= count) || id >= kMaxDevices) {
        return Violation("source-target-id", absl::StrCat("id ", id),
                         absl::StrCat("0 to ", (count > 1 ? count : kMaxDevices) - 1));
      }
    }
    const bool fresh_source = sources.insert(source).second, fresh_target = targets.insert(target).second;
    if (!in_place && (!fresh_source || !fresh_target)) {
      return Violation("source-target-twice",
                       absl::StrCat(fresh_source ? "target " : "source ", fresh_source ? target : source, " twice"),
                       "each source once and each target once");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<int64_t> DeviceProduct(const Dims& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size < 1 || size > kMaxDevices / product) return std::nullopt;
    product *= size;
  }
  return product;
}

absl::Status VerifyCollective(const Instruction& instruction) {
  if (!IsCollective(instruction.opcode())) return absl::OkStatus();
  if (instruction.attributes().use_global_device_ids && !instruction.attributes().channel_id.has_value()) {
    return Violation("global-device-ids", "use_global_device_ids=true without channel_id", "a channel_id");
  }
  XLAD_RETURN_IF_ERROR(CheckGroups(instruction));
  return CheckPairs(instruction);
}

}  // namespace xlad::hlo
