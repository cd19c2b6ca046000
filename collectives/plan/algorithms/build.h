// Helpers that algorithms build schedules with.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {

// Elements [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Part i of n of `whole`: sizes differ by one at most, the larger ones first; empty where there are too few elements.
inline Interval Part(Interval whole, int64_t n, int64_t i) {
  const int64_t base = whole.size() / n, rest = whole.size() % n;
  const int64_t begin = whole.begin + i * base + std::min(i, rest);
  return {begin, begin + base + (i < rest ? 1 : 0)};
}

// All n parts.
std::vector<Interval> Parts(Interval whole, int64_t n);

// i modulo n in [0, n).
inline int Mod(int64_t i, int n) { return static_cast<int>(((i % n) + n) % n); }

inline Region InputRegion(Interval at) { return {ScheduleBuffer::kInput, at.begin, at.size()}; }
inline Region OutputRegion(Interval at) { return {ScheduleBuffer::kOutput, at.begin, at.size()}; }
inline Region ScratchRegion(Interval at) { return {ScheduleBuffer::kScratch, at.begin, at.size()}; }

// Appends operations to one rank's schedule. Operations on no elements are left out: every rank leaves out the same.
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
  // Operands by rank; the own one is `own`, all others come as messages.
  void ReduceMany(Region dst, std::vector<ReduceSource> sources);

  Schedule Finish(bool in_place, int64_t scratch = 0);

 private:
  Schedule schedule_;
  int channel_ = 0;
};

// The units that a plan cuts `whole` into: channels, then chunks of each.
struct Unit {
  int channel = 0;
  Interval at;
};
std::vector<Unit> Units(const CollectivePlan& plan, Interval whole);

// Schedules of all ranks by one function for one of them.
template <typename BuildRank>
std::vector<Schedule> ForAllRanks(const CollectiveSpec& spec, const BuildRank& build_rank) {
  std::vector<Schedule> schedules;
  schedules.reserve(spec.ranks);
  for (int rank = 0; rank < spec.ranks; ++rank) schedules.push_back(build_rank(rank));
  return schedules;
}

// The largest value of a function of the rank.
template <typename F>
int64_t MaxOverRanks(int ranks, const F& f) {
  int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max<int64_t>(most, f(rank));
  return most;
}

}  // namespace xlad::collectives
