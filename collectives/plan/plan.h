// Plans of collectives: an algorithm with its parameters, from which the schedule of each rank is built.
//
// All functions are pure and thread-safe. A plan and a spec determine the schedules on all machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/cost_parameters.h"
#include "collectives/plan/schedule.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

struct CollectivePlan {
  std::string algorithm;  // The name of an algorithm of algorithm.h: "ring", "direct", ...
  int chunks = 1;         // The number of pieces of the data that are pipelined.
  int channels = 1;       // The number of channels that carry equal parts of the data.
  // The sizes of the dimensions of a grid (ring_2d, ring_3d, swing: X first), or the numbers of ranks of the levels of
  // a hierarchy (hierarchical: ranks per host, hosts). Its product is the number of ranks. Rank r has the coordinates r
  // % X, r / X % Y, ... Empty: the algorithm chooses.
  std::vector<int> grid;
  int radix = 4;           // The number of children of a node on each level of a k-nomial tree, plus one.
  std::vector<int> order;  // The rank at each position of the ring, grid or tree; empty: position r has rank r.
  std::string protocol;    // How messages are moved: "" (the communicator chooses), "slots", "windows", "board".
  std::string engine;      // Who runs the collective: "" (our schedules), "nccl".

  // The canonical text, "ring chunks=1 channels=1" or "ring_2d chunks=4 channels=2 grid=4x4". Parameters other than
  // chunks and channels are omitted if they have their default values. ParsePlan reads it.
  std::string ToString() const;
  std::string AlgorithmText() const;  // ToString without chunks and channels.
  friend bool operator==(const CollectivePlan&, const CollectivePlan&) = default;
};

// InvalidArgument if the text is malformed. Parameters may be in any order or missing.
absl::StatusOr<CollectivePlan> ParsePlan(absl::string_view text);

// The fastest plan by the cost model (cost.h) among those that keep the order of reduction that the spec's mode asks
// for. InvalidArgument if the spec is invalid (ValidateSpec).
absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec, const CostParameters& costs = {});

// A name of the order in which a plan reduces contributions: plans of equal names give equal bits.
std::string ReductionOrder(const CollectivePlan& plan);

// The schedule of one rank. InvalidArgument if the algorithm is unknown or cannot run a collective of this spec (the
// message lists the algorithms that can), or a parameter does not fit the spec.
absl::StatusOr<Schedule> BuildSchedule(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);
// The schedules of all ranks, in order of rank.
absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec);

// A hash of the texts of plan and spec and of the schedule of rank 0, which all ranks can compute at the cost of
// building one schedule: different specs, plans and versions of an algorithm have different hashes. The field
// schedule_hash of proto CollectivePlanProto.
absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec);

// The bytes that the rank that sends the most sends in one execution, by the algorithm's formula.
absl::StatusOr<int64_t> WireBytes(const CollectivePlan& plan, const CollectiveSpec& spec);

// The number of messages on the longest chain of dependent messages, by the algorithm's formula.
absl::StatusOr<int64_t> Rounds(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives
