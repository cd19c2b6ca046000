// Plans of collectives. A plan is an algorithm with its parameters, from which the schedule of each rank is built.
//
// All functions are pure and thread-safe. A plan and a spec determine the schedules on all machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/schedule.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

struct CollectivePlan {
  std::string algorithm;  // The name of an algorithm of algorithm.h: "ring", "direct", ...
  int chunks = 1;         // The number of pieces of the data that are pipelined.
  int channels = 1;       // The number of channels that carry equal parts of the data.
  // The sizes of the dimensions of a grid (ring_2d, ring_3d, swing: X first), or the number of ranks on each level of a
  // hierarchy (hierarchical, host_chain: ranks per host, hosts). The product of the sizes is the number of ranks. Rank
  // r has the coordinates r % X, r / X % Y, ... If it is empty, the algorithm chooses.
  std::vector<int> grid;
  int radix = 4;  // The k of a k-nomial tree, in which a node has up to k - 1 children on each level.
  // The rank at each position of the ring, grid or tree. If it is empty, the ranks are in ascending order. If the spec
  // has a root, the order is rotated so that position 0 has the root.
  std::vector<int> order;
  std::string protocol;  // How data is moved between ranks: "" (the communicator chooses), "slots", "windows", "board".
  // The library that must run the collective: "nccl", or "" (the communicator chooses xlad's schedules, or NCCL if the
  // bits are the same or the mode allows other bits).
  std::string engine;

  // Returns the canonical text, such as "ring chunks=1 channels=1" or "ring_2d chunks=4 channels=2 grid=4x4".
  // Parameters other than chunks and channels are omitted if they have their default values. ParsePlan reads this text.
  std::string ToString() const;
  std::string AlgorithmText() const;  // Returns the text of ToString without chunks and channels.
  friend bool operator==(const CollectivePlan&, const CollectivePlan&) = default;
};

// InvalidArgument if the text is malformed. Parameters may be in any order or missing.
absl::StatusOr<CollectivePlan> ParsePlan(absl::string_view text);

// Returns the fastest plan at the default speeds (cost_parameters.h) among those with the order of reduction that the
// spec's mode requires. InvalidArgument if the spec is invalid (ValidateSpec).
absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec);

// Returns a name of the order in which a plan reduces contributions. Plans with equal names compute equal bits.
std::string ReductionOrder(const CollectivePlan& plan);

// Builds the schedule of one rank. InvalidArgument if the spec is invalid, if it has no such rank, if the algorithm is
// unknown, if the algorithm cannot run a collective of this spec (the message lists the algorithms that can), or if a
// parameter does not fit the spec.
absl::StatusOr<Schedule> BuildSchedule(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);
// Builds the schedules of all ranks, in the order of the ranks.
absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec);

// Returns a hash of the text of the plan, the text of the spec, and the schedule of rank 0. Any rank can compute it by
// building one schedule. If a text or the schedule of rank 0 differs, so does the hash, except for collisions. The hash
// is the field schedule_hash of the proto CollectivePlanProto.
absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec);

// Returns the bytes that are sent in one execution by the rank that sends the most, by the algorithm's formula.
absl::StatusOr<int64_t> WireBytes(const CollectivePlan& plan, const CollectiveSpec& spec);

// Returns the number of messages on the longest chain of dependent messages, by the algorithm's formula.
absl::StatusOr<int64_t> Rounds(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives
