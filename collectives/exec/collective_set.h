// The collectives of an executable with their plans, shared by all devices of a task.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "proto/executable.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::collectives {

// One collective of the executable.
struct Collective {
  std::string name;  // The name of the user's instruction or, if it is unknown, "collective 7" (its id). For messages.
  // Why the collective is needed or, if that is unknown, only the user's file and line. Empty if both are unknown.
  std::string why;
  CollectiveSpec spec;
  std::vector<std::vector<int>> groups;  // Rank r of group g is the device groups[g][r].
  CollectivePlan plan;
  uint64_t hash = 0;      // ScheduleHash(plan, spec).
  bool is_given = false;  // The user chose the plan, so PlacementRules do not replace it.
  // "all-reduce.7: all_reduce(sum) f32[8] over 4 ranks"
  std::string ToString() const;
};

// The collectives are in the order of Executable.collectives. Immutable after construction.
struct CollectiveSet {
  std::vector<Collective> collectives;
  int num_devices = 0;
};

// Returns the group that a device belongs to and its rank in the group, or {nullptr, -1} if it does not belong to a
// group.
std::pair<const std::vector<int>*, int> FindGroup(const Collective& collective, int device);

// Returns the collectives of an executable. `specs` and `plans` have the same order. InvalidArgument if their numbers
// differ, if a spec or a plan is invalid, or if a plan's schedule_hash is neither 0 nor the hash computed here.
// Different hashes mean that the coordinator and the worker run different versions of xlad.
absl::StatusOr<CollectiveSet> MakeCollectiveSet(const google::protobuf::RepeatedPtrField<xlad::CollectiveSpec>& specs,
                                                const google::protobuf::RepeatedPtrField<CollectivePlanProto>& plans,
                                                int num_devices);

}  // namespace xlad::collectives
