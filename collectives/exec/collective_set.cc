#include "collectives/exec/collective_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/plan/spec_proto.h"

namespace xlad::collectives {

std::string Collective::ToString() const { return absl::StrCat(name, ": ", spec.ToString()); }

std::pair<const std::vector<int>*, int> FindGroup(const Collective& collective, int device) {
  for (const std::vector<int>& group : collective.groups) {
    const auto found = std::find(group.begin(), group.end(), device);
    if (found != group.end()) return {&group, static_cast<int>(found - group.begin())};
  }
  return {nullptr, -1};
}

absl::StatusOr<CollectiveSet> MakeCollectiveSet(const google::protobuf::RepeatedPtrField<xlad::CollectiveSpec>& specs,
                                                const google::protobuf::RepeatedPtrField<CollectivePlanProto>& plans,
                                                int num_devices) {
  if (specs.size() != plans.size()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", plans.size(), " collective plans, expected ", specs.size(),
                                                   ", one for each collective"));
  }
  CollectiveSet set;
  set.num_devices = num_devices;
  for (int i = 0; i < specs.size(); ++i) {
    Collective& collective = set.collectives.emplace_back();
    collective.name = specs[i].op().empty() ? absl::StrCat("collective ", specs[i].collective_id()) : specs[i].op();
    collective.why = specs[i].because_size() > 0 ? specs[i].because(0) : specs[i].source();
    XLAD_ASSIGN_OR_RETURN(collective.spec, SpecFromProto(specs[i], num_devices));
    collective.groups = GroupsFromProto(specs[i], num_devices);
    XLAD_ASSIGN_OR_RETURN(collective.plan, PlanFromProto(plans[i]));
    const absl::StatusOr<uint64_t> hash = ScheduleHash(collective.plan, collective.spec);
    if (!hash.ok()) return Annotate(hash.status(), collective.name);
    collective.hash = *hash;
    if (plans[i].schedule_hash() != 0 && plans[i].schedule_hash() != collective.hash) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: found schedules with hash %016x for plan %s, expected the coordinator's hash %016x: coordinator and "
          "worker are different versions; run the same version of xlad on both",
          collective.ToString(), collective.hash, collective.plan.ToString(), plans[i].schedule_hash()));
    }
  }
  return set;
}

}  // namespace xlad::collectives
