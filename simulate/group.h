// Groups of devices on a slice, and the time of a collective among them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/spec.h"
#include "simulate/slice.h"

namespace xlad::simulate {

// The members of a group along one dimension of the slice: `size` chips, each `stride` chips from the next. Other
// groups, whose chips are between these chips, share the links: every group gets 1 / stride of their rate. Between
// slices (`is_dcn`) every chip has a connection of its own, and the stride is 1.
struct GroupDimension {
  int dimension = 0;
  int size = 1;
  int stride = 1;
  bool wraps = false;
  bool is_dcn = false;
  friend auto operator<=>(const GroupDimension&, const GroupDimension&) = default;
};
using GroupShape = std::vector<GroupDimension>;  // Without dimensions of size 1.

// The shape of the group with these chips. Chips that do not form a grid are treated as a line along the longest
// dimension, whose stride is the mean distance between successive chips. If chips that do not form a grid are in
// several slices, each chip is treated as if it were in a slice of its own.
GroupShape ShapeOf(const std::vector<std::vector<int>>& chips, const Slice& slice);

int RanksOf(const GroupShape& shape);
std::string ToString(const GroupShape& shape);  // "x4 y20 z28", "x4/4" with stride 4, "x16 y16 s2" of two slices

// A collective of one group. `bytes` is the size of a device's input or output, whichever is larger.
struct GroupCollective {
  collectives::CollectiveKind kind = collectives::CollectiveKind::kAllReduce;
  int64_t bytes = 0;
  GroupShape shape;
  friend auto operator<=>(const GroupCollective&, const GroupCollective&) = default;
};

// The phases of a collective, in the order in which they run. A collective over several slices is hierarchical: some
// phases are among the chips of the group in one slice, others among chips with the same coordinates in different
// slices. An all-reduce, for example, is a reduce-scatter in the slices, an all-reduce of the parts across the slices,
// and an all-gather in the slices. If all chips are in one slice, or each chip is in a different slice, the only phase
// is the collective itself.
std::vector<GroupCollective> PhasesOf(const GroupCollective& collective);

struct GroupTime {
  double us = 0;
  double dcn_us = 0;            // The part of `us` that is spent between slices.
  std::string plan;             // The plan of each phase, or "bound" if a phase is too large to be simulated.
  std::vector<double> link_us;  // By dimension of the slice: the mean time that one of its links is busy.
};

// An estimate in microseconds that ignores the algorithm: the launch time, plus the bytes that each device must send,
// divided by the rate of its links, plus the latency of the longest route. For an all-to-all, it is the launch time
// plus the busy time of the busiest link or that latency, whichever is longer. Between slices, the latency of DCN
// replaces the launch time and the route. For a collective with several phases it is the sum over the phases. It is
// cheap to compute and is used to compare placements.
double BoundUs(const GroupCollective& collective, const Slice& slice);

// Computes times of collectives. Simulates a collective's schedules under several plans (collectives/plan/simulate.h)
// and returns the time of the fastest plan. If all ranks of a group do the same work, only one rank is simulated.
// Results are cached. If no links are broken, groups such as x4 y8 and x4 z8, whose dimensions are equal in the same
// order, are simulated once; x8 y4 is another shape. Keeps a reference to the slice. Not thread-safe.
class GroupTimer {
 public:
  explicit GroupTimer(const Slice& slice) : slice_(slice) {}

  // The time of an all_reduce, all_gather, reduce_scatter, all_to_all or broadcast; 0 for an empty shape, which is a
  // group of one chip. Unavailable if broken links separate the chips of the group. The pointer is valid as long as the
  // timer exists.
  absl::StatusOr<const GroupTime*> TimeOf(const GroupCollective& collective);

 private:
  absl::StatusOr<GroupTime> Simulate(const GroupCollective& collective) const;
  absl::StatusOr<GroupTime> TimeOfOnePhase(const GroupCollective& collective);
  absl::StatusOr<GroupTime> SumOf(const std::vector<GroupCollective>& phases);

  const Slice& slice_;
  std::map<GroupCollective, GroupTime> times_;
};

// The coordinates of two chips.
struct ChipPair {
  std::vector<int> from, to;
};
// The time of a permutation: in each pair of chips, `from` sends `bytes` to `to`. `network` is that of one slice.
//
// The time of the pairs within slices is the busy time of the most used link, plus the launch time and the latency of
// the longest route. Chips that differ in several dimensions use one route per dimension, each with an equal part of
// the bytes. Pairs of chips in different slices use only DCN. Both groups of pairs send at the same time, so the result
// is the longer of the two times. Returns the errors of Network::Route.
absl::StatusOr<GroupTime> PermuteTime(const std::vector<ChipPair>& pairs, int64_t bytes, const Slice& slice,
                                      const collectives::Network& network);

}  // namespace xlad::simulate
