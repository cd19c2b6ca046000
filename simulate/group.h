// Groups of devices on a slice, and the time of a collective among them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/spec.h"
#include "simulate/slice.h"

namespace xlad::simulate {

// The members of a group along one dimension of the slice: `size` chips, each `stride` chips from the next. Groups that
// lie between these chips use the same links, each for a part of the time: every group has 1 / stride of their rate.
// Between slices (`is_dcn`) every chip has a connection of its own, and the stride is 1.
struct GroupDimension {
  int dimension = 0;
  int size = 1;
  int stride = 1;
  bool wraps = false;
  bool is_dcn = false;
  friend auto operator<=>(const GroupDimension&, const GroupDimension&) = default;
};
using GroupShape = std::vector<GroupDimension>;  // Dimensions of size 1 are missing.

// The shape of the group with these chips. Chips that do not form a grid are taken for a line along the longest
// dimension with their mean distance, or for chips of as many slices if they are in several.
GroupShape ShapeOf(const std::vector<std::vector<int>>& chips, const Slice& slice);

int RanksOf(const GroupShape& shape);
std::string ToString(const GroupShape& shape);  // "x4 y20 z28", "x4/4" with stride 4, "x16 y16 s2" of two slices

// A collective of one group. `bytes` is the size of the larger of input and output of a device.
struct GroupCollective {
  collectives::CollectiveKind kind = collectives::CollectiveKind::kAllReduce;
  int64_t bytes = 0;
  GroupShape shape;
  friend auto operator<=>(const GroupCollective&, const GroupCollective&) = default;
};

// The collectives that do the work of a collective of several slices, one after the other: those of all chips of the
// group in one slice, and of the chips with the same coordinates across the slices (hierarchical). An all-reduce is a
// reduce-scatter in the slices, an all-reduce of the parts across them, and an all-gather. Itself alone if the chips
// are in one slice, or each in another.
std::vector<GroupCollective> PhasesOf(const GroupCollective& collective);

struct GroupTime {
  double us = 0;
  double dcn_us = 0;            // The part of it that is spent between slices.
  std::string plan;             // The plan that was simulated, or "bound" if the group is too large to be simulated.
  std::vector<double> link_us;  // By dimension of the slice: the mean time that one of its links is busy.
};

// The least time in microseconds: the bytes that each device must send over the rate of its links, and the latency of
// the longest way; of several slices, the sum over the phases. Cheap; placements are compared by it.
double BoundUs(const GroupCollective& collective, const Slice& slice);

// Times of collectives by simulation of their schedules (collectives/plan/simulate.h), with the fastest of some plans.
// On groups in which all ranks are alike, one rank stands for all. Results are kept. Not thread-safe.
class GroupTimer {
 public:
  explicit GroupTimer(const Slice& slice) : slice_(slice) {}

  // all_reduce, all_gather, reduce_scatter, all_to_all and broadcast. The reference is valid as long as the timer.
  absl::StatusOr<const GroupTime*> TimeOf(const GroupCollective& collective);

 private:
  absl::StatusOr<GroupTime> Simulate(const GroupCollective& collective) const;
  absl::StatusOr<GroupTime> SumOf(const std::vector<GroupCollective>& phases);

  const Slice& slice_;
  std::map<GroupCollective, GroupTime> times_;
};

// The time of a permutation: each pair of chips (their coordinates) sends `bytes`, and the most used link decides.
// Chips that differ in several dimensions have as many routes, one through each port of the sender that leads closer,
// with equal parts of the bytes. Chips of two slices use DCN alone. `network` is that of one slice.
struct ChipPair {
  std::vector<int> from, to;
};
absl::StatusOr<GroupTime> PermuteTime(const std::vector<ChipPair>& pairs, int64_t bytes, const Slice& slice,
                                      const collectives::Network& network);

}  // namespace xlad::simulate
