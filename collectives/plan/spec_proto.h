// Converts the messages CollectiveSpec of proto/executable.proto and CollectivePlanProto of proto/session.proto. The
// functions are templates over the message type, because this folder does not depend on proto/.
#pragma once

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "collectives/plan/plan.h"
#include "tensor/wire.h"

namespace xlad::collectives {

// Returns the devices (positions in the mesh) of each group: rank r of group g is groups[g][r]. A collective permute
// has one group with all `num_devices` devices, because its pairs are pairs of devices.
template <typename SpecProto>
std::vector<std::vector<int>> GroupsFromProto(const SpecProto& proto, int num_devices) {
  std::vector<std::vector<int>> groups;
  if (static_cast<CollectiveKind>(proto.kind()) == CollectiveKind::kCollectivePermute) {
    groups.emplace_back(num_devices);
    std::iota(groups[0].begin(), groups[0].end(), 0);
    return groups;
  }
  for (const auto& group : proto.groups()) groups.emplace_back(group.devices().begin(), group.devices().end());
  return groups;
}

// Returns the spec that all groups of `proto` share. InvalidArgument, with the id and op of the collective, if the
// message is not a valid collective over `num_devices` devices.
template <typename SpecProto>
absl::StatusOr<CollectiveSpec> SpecFromProto(const SpecProto& proto, int num_devices) {
  const auto error = [&](auto&&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("collective ", proto.collective_id(), " (", proto.op(), "): ", what...));
  };
  CollectiveSpec spec;
  spec.kind = static_cast<CollectiveKind>(proto.kind());
  spec.reduction = Reduces(spec.kind) ? static_cast<Reduction>(proto.reduction()) : Reduction::kNone;
  if (Reduces(spec.kind)) {
    const int mode = proto.mode();
    if (mode < 0 || mode > 2) return error("found reduction mode ", mode, ", expected 0 to 2");
    spec.mode = static_cast<ReductionMode>(mode);
  }
  spec.type = tensor::TypeFromWire(proto);
  spec.counts.assign(proto.counts().begin(), proto.counts().end());
  const std::vector<std::vector<int>> groups = GroupsFromProto(proto, num_devices);
  if (groups.empty()) return error("found no groups, expected at least one");
  spec.ranks = std::ssize(groups[0]);
  std::vector<bool> seen(num_devices, false);
  for (const std::vector<int>& group : groups) {
    if (group.size() != groups[0].size()) {
      return error("found groups of ", groups[0].size(), " and ", group.size(), " devices, expected equal sizes");
    }
    for (int device : group) {
      if (device < 0 || device >= num_devices) {
        return error("found device ", device, " in a group, expected 0 to ", num_devices - 1);
      }
      if (seen[device]) return error("found device ", device, " twice in the groups, expected at most once");
      seen[device] = true;
    }
  }
  for (const auto& pair : proto.pairs()) spec.pairs.push_back({pair.source(), pair.target()});
  const absl::Status valid = ValidateSpec(spec);
  if (!valid.ok()) return error(valid.message());
  return spec;
}

// The field `algorithm` of the message contains the text of the plan without chunks and channels: "ring_2d grid=4x4".
template <typename PlanProto>
absl::StatusOr<CollectivePlan> PlanFromProto(const PlanProto& proto) {
  XLAD_ASSIGN_OR_RETURN(CollectivePlan plan, ParsePlan(proto.algorithm()));
  plan.chunks = proto.chunks();
  plan.channels = proto.channels();
  return plan;
}

template <typename PlanProto>
PlanProto PlanToProto(const CollectivePlan& plan, uint64_t schedule_hash) {
  PlanProto proto;
  proto.set_algorithm(plan.AlgorithmText());
  proto.set_chunks(plan.chunks);
  proto.set_channels(plan.channels);
  proto.set_schedule_hash(schedule_hash);
  return proto;
}

}  // namespace xlad::collectives
