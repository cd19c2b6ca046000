// Helpers for building schedules.
#pragma once

#include <algorithm>
#include <vector>

#include "base/powers_of_two.h"
#include "base/rounding.h"
#include "collectives/plan/algorithm.h"

namespace xlad::collectives {

// The elements [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Returns part i of `all` split into n parts. Their sizes differ by at most one, and the larger parts are first. If
// there are fewer than n elements, some parts are empty. The parts of [0, 8) for n = 3 are [0, 3), [3, 6), [6, 8).
inline Interval Part(Interval all, int64_t n, int64_t i) {
  const int64_t base = all.size() / n, rest = all.size() % n;
  const int64_t begin = all.begin + i * base + std::min(i, rest);
  return {begin, begin + base + (i < rest ? 1 : 0)};
}

// Returns all n parts.
std::vector<Interval> Parts(Interval all, int64_t n);

// Returns i modulo n, in [0, n).
inline int Mod(int64_t i, int n) { return ((i % n) + n) % n; }

inline Region InputRegion(Interval at) { return {ScheduleBuffer::kInput, at.begin, at.size()}; }
inline Region OutputRegion(Interval at) { return {ScheduleBuffer::kOutput, at.begin, at.size()}; }
inline Region ScratchRegion(Interval at) { return {ScheduleBuffer::kScratch, at.begin, at.size()}; }

// The ranks in the order of the plan: position p has the rank order[p]. If the spec has a root, position 0 has the
// root.
class Positions {
 public:
  Positions(const CollectivePlan& plan, const CollectiveSpec& spec);
  int size() const { return ranks_; }
  int RankAt(int64_t position) const;
  int PositionOf(int rank) const;

 private:
  int ranks_;
  int root_ = 0;
  // Position p has the rank order_[p]. If it is empty, position p has the rank p + root, modulo the number of ranks.
  std::vector<int> order_;
  std::vector<int> positions_;  // The inverse of order_.
};

// Appends operations to the schedule of one rank. Peers are positions. Operations on empty regions are omitted, except
// by SendEmpty and RecvEmpty. A send and its receive have the same size, so both or neither are omitted. If At is not
// called, operations are in the order of the calls.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);

  int position() const { return position_; }
  int ranks() const { return positions_.size(); }
  const Positions& positions() const { return positions_; }
  int rank() const { return schedule_.rank; }
  // Returns the elements of the part of the rank at a position, in the buffer that has n parts.
  Interval PartAt(int64_t position) const;
  // Returns the beginning of the part of this rank.
  int64_t PartBegin() const { return PartAt(position_).begin; }

  void set_channel(int channel) { channel_ = channel; }
  // Later calls append operations of this step of this round. Finish orders the operations by round and step. Within a
  // step, it orders sends and signals before all others. This order cannot deadlock if messages are received in the
  // step in which they are sent. A rank that sends several messages to the same peer on the same channel in one round
  // must send them in different steps. `step` must be less than 2^20.
  void At(int64_t round, int step = 0) { time_ = (round << 20) + step; }

  void Send(int peer, Region src);
  void Recv(int peer, Region dst);
  void RecvReduce(int peer, Region dst, Region src);
  // Reduces two operands to dst, the operand of the smaller position first. `own` is this rank's operand. The other one
  // is the next message from `peer`.
  void RecvReduceInOrder(int peer, Region dst, Region own);
  void Copy(Region dst, Region src);
  void Zero(Region dst);
  // Combines the sources in order, or as a balanced tree if the spec is canonical. Peers of the sources are positions.
  void Reduce(Region dst, std::vector<ReduceSource> sources, std::vector<Region> more_dsts = {});
  // Sends a message without elements.
  void SendEmpty(int peer) { Push(OpKind::kSend, peer, InputRegion({}), {}); }
  void RecvEmpty(int peer) { Push(OpKind::kRecv, peer, {}, OutputRegion({})); }
  void Signal(int peer, int flag);
  void Wait(int peer, int flag);
  // Orders two channels of this rank: the operations on channel `to` after the current step (At) follow the operations
  // on channel `from` before it.
  void Order(int from, int to, int flag);

  // Reserves scratch memory for `count` elements.
  Interval Scratch(int64_t count);

  // Returns the schedule. It is marked as in place if `in_place` is true and the kind can run in place. Called once.
  Schedule Finish(bool in_place);

 private:
  ScheduleOp& Push(OpKind kind, int peer, Region src, Region dst);

  const CollectiveSpec& spec_;
  const Positions positions_;
  std::vector<int64_t> part_begins_;
  Schedule schedule_;
  std::vector<int64_t> times_;
  int position_ = 0;
  int channel_ = 0;
  int64_t time_ = 0;
};

// The part of a rank in a reduction up a tree of positions: reduces its input and the messages of its children, in
// their order, to `partial`, and sends the result to its parent. The parent of the root is -1. A leaf sends its input
// and does not use `partial`.
void ReduceUp(int parent, const std::vector<int>& children, Interval at, Region partial, ScheduleBuilder* builder);
// The part of a rank in a broadcast down a tree of positions: receives the elements from its parent in its output, and
// sends them to its children in their order. The root (parent -1) sends its input if `from_input` is true, and copies
// it to its output. Otherwise it sends its output.
void BroadcastDown(int parent, const std::vector<int>& children, Interval at, bool from_input,
                   ScheduleBuilder* builder);

// The part of the data that one message carries: a chunk of a channel's part.
struct Unit {
  int channel = 0;
  int64_t chunk = 0;
  Interval at;
};
// Returns the units of `all`, ordered by chunk. `all` is split into the parts of the channels, and each of these into
// chunks.
std::vector<Unit> Units(const CollectivePlan& plan, Interval all);
// Returns the elements of `part` that the unit carries if every part is split into units.
inline Interval UnitOf(const CollectivePlan& plan, const Unit& unit, Interval part) {
  return Part(Part(part, plan.channels, unit.channel), plan.chunks, unit.chunk);
}
inline int64_t NumUnits(const CollectivePlan& plan) { return int64_t{plan.chunks} * plan.channels; }

// Returns `count`, the number of elements of the collective, rounded up to a multiple of `parts` times the number of
// units of the plan. The formulas are exact if the result is `count`.
inline int64_t EvenElements(const CollectivePlan& plan, int64_t count, int64_t parts) {
  return RoundUp(count, parts * NumUnits(plan));
}

// Returns the number of elements of the largest part of a spec whose kind has n parts.
int64_t LargestPart(const CollectiveSpec& spec);

// Returns the intervals in order, without empty ones. Adjacent intervals are merged.
std::vector<Interval> Merged(std::vector<Interval> intervals);

// A check that many algorithms share. It returns what the algorithm expects, or "" if the spec has one of the kinds.
std::string RefuseKinds(const CollectiveSpec& spec, std::initializer_list<CollectiveKind> kinds);

}  // namespace xlad::collectives
