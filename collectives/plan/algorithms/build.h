// Helpers for building schedules.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {

// The elements [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Part i of `all` split into n parts. Sizes differ by at most one, the larger parts first; some parts are empty if
// there are fewer than n elements. The parts of [0, 8) for n = 3 are [0, 3), [3, 6), [6, 8).
inline Interval Part(Interval all, int64_t n, int64_t i) {
  const int64_t base = all.size() / n, rest = all.size() % n;
  const int64_t begin = all.begin + i * base + std::min(i, rest);
  return {begin, begin + base + (i < rest ? 1 : 0)};
}

// All n parts.
std::vector<Interval> Parts(Interval all, int64_t n);

// i modulo n in [0, n).
inline int Mod(int64_t i, int n) { return ((i % n) + n) % n; }

inline Region InputRegion(Interval at) { return {ScheduleBuffer::kInput, at.begin, at.size()}; }
inline Region OutputRegion(Interval at) { return {ScheduleBuffer::kOutput, at.begin, at.size()}; }
inline Region ScratchRegion(Interval at) { return {ScheduleBuffer::kScratch, at.begin, at.size()}; }

// Appends operations to the schedule of one rank. Operations on empty regions are omitted; this is consistent because
// both ends of a message have the same size.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const CollectiveSpec& spec, int rank);

  int rank() const { return schedule_.rank; }
  int ranks() const { return schedule_.ranks; }
  void set_channel(int channel) { channel_ = channel; }

  void Send(int peer, Region src);
  void Recv(int peer, Region dst);
  void RecvReduce(int peer, Region dst, Region src);
  void Copy(Region dst, Region src);
  void Zero(Region dst);
  // Combines the sources in order.
  void ReduceMany(Region dst, std::vector<ReduceSource> sources);

  Schedule Finish(bool in_place, int64_t scratch = 0);

 private:
  Schedule schedule_;
  int channel_ = 0;
};

// One message's share of the data: a chunk of the part of a channel.
struct Unit {
  int channel = 0;
  Interval at;
};
// The units of `all`: it is split into the parts of the channels, and each of these into chunks. Ordered by chunk.
std::vector<Unit> Units(const CollectivePlan& plan, Interval all);

// The largest value of a function of the rank.
template <typename F>
int64_t MaxOverRanks(int ranks, const F& f) {
  int64_t max = 0;
  for (int rank = 0; rank < ranks; ++rank) max = std::max<int64_t>(max, f(rank));
  return max;
}

}  // namespace xlad::collectives
