// How a collective runs: an algorithm and its parameters, and the schedules that follow from them.
//
// Pure functions of their arguments, thread-safe. The same plan and spec give the same schedules on every machine.
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
  std::string algorithm;         // A name of Algorithms() (algorithm.h): "ring", "direct", ...
  int chunks = 1;                // Messages that the algorithm's unit is cut into.
  int channels = 1;              // Lanes that carry equal shares of the data.
  std::string ToString() const;  // "ring chunks=1 channels=1"
  friend bool operator==(const CollectivePlan&, const CollectivePlan&) = default;
};

// The plan that the cost model (cost.h) finds fastest. InvalidArgument for a spec that ValidateSpec refuses.
absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec, const Topology& topology = {});

// One schedule for each rank. InvalidArgument where the algorithm is unknown or does not do that kind; the message
// says which do.
absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec);

// HashSchedules(BuildSchedules(plan, spec)): proto CollectivePlanProto.schedule_hash.
absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec);

// Bytes that the rank which sends most sends, once; by the algorithm's formula, without building schedules.
absl::StatusOr<int64_t> WireBytes(const CollectivePlan& plan, const CollectiveSpec& spec);

// Messages on the longest chain in which each waits for the one before; by the algorithm's formula.
absl::StatusOr<int64_t> Rounds(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives
