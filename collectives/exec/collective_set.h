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
  std::string name;  // The user's instruction, for messages.
  std::string why;   // The instruction that needs it, with the user's file and line; empty if unknown.
  CollectiveSpec spec;
  std::vector<std::vector<int>> groups;  // Rank r of group g is device groups[g][r].
  CollectivePlan plan;
  uint64_t hash = 0;  // ScheduleHash(plan, spec).
  // "all-reduce.7: all_reduce(sum) f32[8] over 4 ranks"
  std::string ToString() const;
};

// Immutable after construction. In the order of Executable.collectives.
struct CollectiveSet {
  std::vector<Collective> collectives;
  int num_devices = 0;
  int64_t max_message_bytes = 0;  // The size of the largest message.
};

// The rank of a device and the group that it belongs to, or {nullptr, -1} if it belongs to none.
std::pair<const std::vector<int>*, int> FindGroup(const Collective& collective, int device);

// InvalidArgument if a collective is malformed, plans are missing, or the
// schedule_hash of a plan (unless it is 0) differs from the hash computed here: then coordinator and worker have
// different versions.
absl::StatusOr<CollectiveSet> MakeCollectiveSet(const google::protobuf::RepeatedPtrField<xlad::CollectiveSpec>& specs,
                                                const google::protobuf::RepeatedPtrField<CollectivePlanProto>& plans,
                                                int num_devices);

}  // namespace xlad::collectives
