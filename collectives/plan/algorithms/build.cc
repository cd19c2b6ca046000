// Helpers for building schedules.
#include "collectives/plan/algorithms/build.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"

namespace xlad::collectives {

std::vector<Interval> Parts(Interval all, int64_t n) {
  std::vector<Interval> parts;
  parts.reserve(n);
  for (int64_t i = 0; i < n; ++i) parts.push_back(Part(all, n, i));
  return parts;
}

Positions::Positions(const CollectivePlan& plan, const CollectiveSpec& spec) : ranks_(spec.ranks) {
  if (HasRoot(spec.kind)) root_ = spec.root;
  if (plan.order.empty()) return;
  order_ = plan.order;
  positions_.resize(ranks_);
  if (HasRoot(spec.kind)) std::rotate(order_.begin(), std::find(order_.begin(), order_.end(), root_), order_.end());
  for (int p = 0; p < ranks_; ++p) positions_[order_[p]] = p;
}

int Positions::RankAt(int64_t position) const {
  return order_.empty() ? Mod(position + root_, ranks_) : order_[position];
}

int Positions::PositionOf(int rank) const { return order_.empty() ? Mod(rank - root_, ranks_) : positions_[rank]; }

ScheduleBuilder::ScheduleBuilder(const CollectivePlan& plan, const CollectiveSpec& spec, int rank)
    : spec_(spec), positions_(plan, spec) {
  position_ = positions_.PositionOf(rank);
  schedule_.rank = rank;
  schedule_.ranks = spec.ranks;
  schedule_.input = spec.input_elements(rank);
  schedule_.output = spec.output_elements(rank);
  if (spec.sizes.empty() || spec.kind == CollectiveKind::kAllToAll) return;
  part_begins_.push_back(0);
  for (const int64_t size : spec.sizes) part_begins_.push_back(part_begins_.back() + size);
}

Interval ScheduleBuilder::PartAt(int64_t position) const {
  const int64_t rank = positions_.RankAt(position);
  if (!part_begins_.empty()) return {part_begins_[rank], part_begins_[rank + 1]};
  const int64_t part = LargestPart(spec_);
  return {rank * part, (rank + 1) * part};
}

ScheduleOp& ScheduleBuilder::Push(OpKind kind, int peer, Region src, Region dst) {
  ScheduleOp& op = schedule_.ops.emplace_back();
  op.kind = kind;
  op.channel = channel_;
  op.peer = peer < 0 ? -1 : positions_.RankAt(peer);
  op.src = src;
  op.dst = dst;
  times_.push_back(time_);
  return op;
}

void ScheduleBuilder::Send(int peer, Region src) {
  if (src.count > 0) Push(OpKind::kSend, peer, src, {});
}

void ScheduleBuilder::Recv(int peer, Region dst) {
  if (dst.count > 0) Push(OpKind::kRecv, peer, {}, dst);
}

void ScheduleBuilder::RecvReduce(int peer, Region dst, Region src) {
  if (dst.count > 0) Push(OpKind::kRecvReduce, peer, src, dst);
}

void ScheduleBuilder::RecvReduceInOrder(int peer, Region dst, Region own) {
  std::vector<ReduceSource> sources(2);
  sources[peer < position_ ? 0 : 1].peer = peer;
  sources[peer < position_ ? 1 : 0].region = own;
  Reduce(dst, std::move(sources));
}

void ScheduleBuilder::Copy(Region dst, Region src) {
  if (dst.count > 0) Push(OpKind::kCopy, -1, src, dst);
}

void ScheduleBuilder::Zero(Region dst) {
  if (dst.count > 0) Push(OpKind::kZero, -1, {}, dst);
}

void ScheduleBuilder::Reduce(Region dst, std::vector<ReduceSource> sources, std::vector<Region> more_dsts) {
  if (dst.count == 0) return;
  for (ReduceSource& source : sources) {
    if (source.peer >= 0) source.peer = positions_.RankAt(source.peer);
  }
  const bool tree = spec_.mode == ReductionMode::kCanonical && sources.size() > 2;
  ScheduleOp& op = Push(tree ? OpKind::kReduceTree : OpKind::kReduceMany, -1, {}, dst);
  op.sources = std::move(sources);
  op.more_dsts = std::move(more_dsts);
}

void ScheduleBuilder::Signal(int peer, int flag) { Push(OpKind::kSignal, peer, {}, {}).flag = flag; }

void ScheduleBuilder::Wait(int peer, int flag) { Push(OpKind::kWait, peer, {}, {}).flag = flag; }

void ScheduleBuilder::Order(int from, int to, int flag) {
  const int channel = channel_;
  channel_ = from;
  Signal(position_, flag);
  channel_ = to;
  Wait(position_, flag);
  channel_ = channel;
}

Interval ScheduleBuilder::Scratch(int64_t count) {
  const Interval out{schedule_.scratch, schedule_.scratch + count};
  schedule_.scratch += count;
  return out;
}

Schedule ScheduleBuilder::Finish(bool in_place) {
  schedule_.in_place = in_place && InPlaceOffsetsOf(spec_, schedule_.rank).valid;
  std::vector<int64_t> index(times_.size());
  std::iota(index.begin(), index.end(), 0);
  const auto key = [&](int64_t i) {
    const OpKind kind = schedule_.ops[i].kind;
    return times_[i] * 2 + (kind == OpKind::kSend || kind == OpKind::kSignal ? 0 : 1);
  };
  const bool timed = std::any_of(times_.begin(), times_.end(), [](int64_t time) { return time != 0; });
  if (!timed) return std::move(schedule_);
  std::stable_sort(index.begin(), index.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  std::vector<ScheduleOp> ops;
  ops.reserve(index.size());
  for (const int64_t i : index) ops.push_back(std::move(schedule_.ops[i]));
  schedule_.ops = std::move(ops);
  return std::move(schedule_);
}

void ReduceUp(int parent, const std::vector<int>& children, Interval at, Region partial, ScheduleBuilder* builder) {
  if (!children.empty()) {
    std::vector<ReduceSource> sources(1);
    sources[0].region = InputRegion(at);
    for (const int child : children) sources.push_back({child, {}});
    builder->Reduce(partial, std::move(sources));
  }
  if (parent >= 0) builder->Send(parent, children.empty() ? InputRegion(at) : partial);
}

void BroadcastDown(int parent, const std::vector<int>& children, Interval at, bool from_input,
                   ScheduleBuilder* builder) {
  if (parent >= 0) builder->Recv(parent, OutputRegion(at));
  const bool is_source = from_input && parent < 0;
  if (is_source) builder->Copy(OutputRegion(at), InputRegion(at));
  for (const int child : children) builder->Send(child, is_source ? InputRegion(at) : OutputRegion(at));
}

std::vector<Unit> Units(const CollectivePlan& plan, Interval all) {
  std::vector<Unit> units;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    for (int channel = 0; channel < plan.channels; ++channel) {
      const Interval part = Part(all, plan.channels, channel);
      units.push_back({channel, chunk, Part(part, plan.chunks, chunk)});
    }
  }
  return units;
}

int64_t LargestPart(const CollectiveSpec& spec) {
  if (!spec.sizes.empty()) return *std::max_element(spec.sizes.begin(), spec.sizes.end());
  const bool in_input = InputHasParts(spec.kind);
  return in_input ? spec.input_elements() / spec.ranks : spec.output_elements() / spec.ranks;
}

std::vector<Interval> Merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& at : intervals) {
    if (at.size() == 0) continue;
    if (!out.empty() && out.back().end == at.begin) {
      out.back().end = at.end;
    } else {
      out.push_back(at);
    }
  }
  return out;
}

std::string RefuseKinds(const CollectiveSpec& spec, std::initializer_list<CollectiveKind> kinds) {
  if (Contains(kinds, spec.kind)) return "";
  return absl::StrJoin(kinds, " or ",
                       [](std::string* out, CollectiveKind kind) { absl::StrAppend(out, ToString(kind)); });
}

}  // namespace xlad::collectives
