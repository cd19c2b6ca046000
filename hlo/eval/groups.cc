#include "hlo/eval/groups.h"

#include "base/containers.h"

namespace xlad::hlo::eval {
namespace {

enum class Ids { kReplicas, kReplicasWithPartitions, kPartitions, kDevices };

bool ReducesOrGathers(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart:
    case Opcode::kReduceScatter:
    case Opcode::kAllGather:
    case Opcode::kAllGatherStart:
      return true;
    default:
      return false;
  }
}

bool IsPermute(Opcode opcode) {
  return opcode == Opcode::kCollectivePermute || opcode == Opcode::kCollectivePermuteStart;
}

Ids IdsOf(const Instruction& instruction) {
  const Attributes& attributes = instruction.attributes();
  if (attributes.use_global_device_ids) return Ids::kDevices;
  if (!attributes.channel_id.has_value()) return Ids::kReplicas;
  return ReducesOrGathers(instruction.opcode()) ? Ids::kReplicasWithPartitions : Ids::kPartitions;
}

int64_t IdCount(Ids ids, const DeviceGrid& grid) {
  if (ids == Ids::kDevices) return grid.devices();
  return ids == Ids::kPartitions ? grid.partitions : grid.replicas;
}

int64_t IdOf(Ids ids, const DeviceGrid& grid, int64_t device) {
  if (ids == Ids::kDevices) return device;
  return ids == Ids::kPartitions ? device % grid.partitions : device / grid.partitions;
}

// The devices that `id` denotes in the group of `device`.
std::vector<int64_t> DevicesOf(Ids ids, const DeviceGrid& grid, int64_t id, int64_t device) {
  switch (ids) {
    case Ids::kReplicas:
      return {id * grid.partitions + device % grid.partitions};
    case Ids::kPartitions:
      return {device / grid.partitions * grid.partitions + id};
    case Ids::kDevices:
      return {id};
    case Ids::kReplicasWithPartitions:
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
  const Ids ids = IdsOf(instruction);
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
  const Ids ids = IdsOf(instruction);
  const int64_t own = IdOf(ids, grid, device);
  for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
    if (target != own) continue;
    XLAD_RETURN_IF_ERROR(CheckId(source, IdCount(ids, grid), "source_target_pairs"));
    return DevicesOf(ids, grid, source, device)[0];
  }
  return -1;
}

}  // namespace xlad::hlo::eval
