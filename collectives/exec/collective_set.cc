#include "collectives/exec/collective_set.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/plan/spec_proto.h"

namespace xlad::collectives {

std::string Collective::ToString() const { return absl::StrCat(name, ": ", spec.ToString()); }

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
    absl::StatusOr<std::vector<Schedule>> schedules = BuildSchedules(collective.plan, collective.spec);
    if (!schedules.ok()) return Annotate(schedules.status(), collective.name);
    collective.schedules = *std::move(schedules);
    XLAD_ASSIGN_OR_RETURN(collective.hash, ScheduleHash(collective.plan, collective.spec));
    if (plans[i].schedule_hash() != 0 && plans[i].schedule_hash() != collective.hash) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: found schedules with hash %016x for plan %s, expected %016x as the coordinator has: coordinator and "
          "worker are of different versions",
          collective.ToString(), collective.hash, collective.plan.ToString(), plans[i].schedule_hash()));
    }
    const int64_t elements = std::max(collective.spec.input_elements(), collective.spec.output_elements());
    set.max_message_bytes = std::max(set.max_message_bytes, elements * tensor::ByteWidth(collective.spec.type));
  }
  // Communicators compare one hash per collective when they form.
  set.max_message_bytes = std::max<int64_t>(set.max_message_bytes, 8 * (specs.size() + 1));
  return set;
}

}  // namespace xlad::collectives
