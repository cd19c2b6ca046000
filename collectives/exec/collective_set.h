// All collectives of an executable with their plans and schedules: what every device of a task shares.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "proto/executable.pb.h"
#include "proto/worker.pb.h"

namespace xlad::collectives {

// One collective of the executable, with the schedules that all its groups use.
struct Collective {
  std::string name;  // The user's instruction, for messages.
  std::string why;   // What needs it, with the user's file and line; empty where unknown.
  CollectiveSpec spec;
  std::vector<std::vector<int>> groups;  // Rank r of group g is device groups[g][r].
  CollectivePlan plan;
  std::vector<Schedule> schedules;  // By rank.
  uint64_t hash = 0;                // HashSchedules(schedules)
  // "all-reduce.7: all_reduce(sum) f32[8] over 4 ranks"
  std::string ToString() const;
};

// Immutable once made; in the order of Executable.collectives.
struct CollectiveSet {
  std::vector<Collective> collectives;
  int num_devices = 0;
  int64_t max_message_bytes = 0;  // No message is larger.
};

// InvalidArgument where a collective is malformed, plans are missing, or a plan's schedule_hash (0: none) is not that
// of the schedules built here: then coordinator and worker are of different versions.
absl::StatusOr<CollectiveSet> MakeCollectiveSet(const google::protobuf::RepeatedPtrField<xlad::CollectiveSpec>& specs,
                                                const google::protobuf::RepeatedPtrField<CollectivePlanProto>& plans,
                                                int num_devices);

}  // namespace xlad::collectives
