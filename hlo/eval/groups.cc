#include "hlo/eval/groups.h"

#include "base/containers.h"
#include "hlo/infer/group_ids.h"

namespace xlad::hlo::eval {
namespace {

bool IsPermute(Opcode opcode) {
  return opcode == Opcode::kCollectivePermute || opcode == Opcode::kCollectivePermuteStart;
}

int64_t IdCount(GroupIds ids, const DeviceGrid& grid) {
  if (ids == GroupIds::kGlobal) return grid.devices();
  return ids == GroupIds::kPartition ? grid.partitions : grid.replicas;
}

int64_t IdOf(GroupIds ids, const DeviceGrid& grid, int64_t device) {
  if (ids == GroupIds::kGlobal) return device;
  return ids == GroupIds::kPartition ? device % grid.partitions : device / grid.partitions;
}

// The devices that `id` denotes in the group of `device`.
std::vector<int64_t> DevicesOf(GroupIds ids, const DeviceGrid& grid, int64_t id, int64_t device) {
  switch (ids) {
    case GroupIds::kReplica:
      return {id * grid.partitions + device % grid.partitions};
    case GroupIds::kPartition:
      return {device / grid.partitions * grid.partitions + id};
    case GroupIds::kGlobal:
      return {id};
    case GroupIds::kReplicaAllPartitions:
      break;
  }
  std::vector<int64_t> devices;
  for (int64_t p = 0; p < grid.partitions; ++p) devices.push_back(id * grid.partitions + p);
  return devices;
}

absl::Status CheckId(int64_t id, int64_t count, absl::string_view what) {
  if (id >= 0 && id < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found id ", id, " in ", what, ", expected ids from 0 to ", count - 1,
                                                 ", one per replica, partition or device"));
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> CollectiveGroup(const Instruction& instruction, const DeviceGrid& grid,
                                                     int64_t device) {
  const GroupIds ids = IdsOf(instruction);
  const int64_t count = IdCount(ids, grid), own = IdOf(ids, grid, device);
  std::vector<std::vector<int64_t>> groups;
  if (IsPermute(instruction.opcode())) {  // All devices take part, even those that send nothing.
    groups.resize(1);
    for (int64_t id = 0; id < count; ++id) groups[0].push_back(id);
  } else {
    groups = instruction.attributes().replica_groups.Expand(count);
  }
  for (const auto& group : groups) {
    if (!Contains(group, own)) continue;
    std::vector<int64_t> devices;
    for (const int64_t id : group) {
      XLAD_RETURN_IF_ERROR(CheckId(id, count, "replica_groups"));
      for (const int64_t member : DevicesOf(ids, grid, id, device)) devices.push_back(member);
    }
    return devices;
  }
  if (instruction.opcode() == Opcode::kCollectiveBroadcast) return std::vector<int64_t>();
  return absl::InvalidArgumentError(absl::StrCat("found replica_groups without id ", own, " (device ", device,
                                                 "), expected every device in one group"));
}

absl::StatusOr<int64_t> PermuteSource(const Instruction& instruction, const DeviceGrid& grid, int64_t device) {
  const GroupIds ids = IdsOf(instruction);
  const int64_t own = IdOf(ids, grid, device);
  for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
    if (target != own) continue;
    XLAD_RETURN_IF_ERROR(CheckId(source, IdCount(ids, grid), "source_target_pairs"));
    return DevicesOf(ids, grid, source, device)[0];
  }
  return -1;
}

}  // namespace xlad::hlo::eval
