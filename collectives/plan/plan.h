// Plans of collectives: an algorithm with its parameters, from which the schedules of all ranks are built.
//
// All functions are pure and thread-safe. A plan and a spec determine the schedules on all machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/schedule.h"
#include "collectives/plan/spec.h"
#include "collectives/plan/topology.h"

namespace xlad::collectives {

struct CollectivePlan {
  std::string algorithm;         // The name of an algorithm of algorithm.h: "ring", "direct", ...
  int chunks = 1;                // The number of messages into which each message of the algorithm is split.
  int channels = 1;              // The number of channels that carry equal parts of the data.
  std::string ToString() const;  // "ring chunks=1 channels=1"
  friend bool operator==(const CollectivePlan&, const CollectivePlan&) = default;
};

// The fastest plan by the cost model (cost.h). InvalidArgument if the spec is invalid (ValidateSpec).
absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec, const Topology& topology = {});

// One schedule for each rank. InvalidArgument if the algorithm is unknown or cannot run a collective of this spec; the
// message lists the algorithms that can.
absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec);

// HashSchedules(BuildSchedules(plan, spec)), the field schedule_hash of proto CollectivePlanProto.
absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec);

// The bytes that the rank that sends the most sends in one execution, by the algorithm's formula.
absl::StatusOr<int64_t> WireBytes(const CollectivePlan& plan, const CollectiveSpec& spec);

// The number of messages on the longest chain of dependent messages, by the algorithm's formula.
absl::StatusOr<int64_t> Rounds(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives
