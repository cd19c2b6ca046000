// Rings: each rank exchanges messages only with its two neighbors. Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 2009.
//
// Odd channels use the ring in reverse, so that both directions of each link carry data. Chunks split each message.
#include "collectives/plan/algorithms/ring.h"

#include <numeric>

#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

// The ring of all ranks for a channel.
Ring RingOfAll(int ranks, int rank, int channel) {
  Ring ring;
  ring.members.resize(ranks);
  std::iota(ring.members.begin(), ring.members.end(), 0);
  if (channel % 2 == 1) std::reverse(ring.members.begin(), ring.members.end());
  ring.self = channel % 2 == 1 ? ranks - 1 - rank : rank;
  return ring;
}

int Next(const Ring& ring) { return ring.members[Mod(ring.self + 1, ring.members.size())]; }
int Previous(const Ring& ring) { return ring.members[Mod(ring.self - 1, ring.members.size())]; }

Schedule AllReduce(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    const Ring ring = RingOfAll(spec.ranks, rank, unit.channel);
    const std::vector<Interval> parts = Parts(unit.at, spec.ranks);
    RingReduceScatterPhase(ring, parts, /*from_input=*/true, &builder);
    RingAllGatherPhase(ring, parts, &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

// Partial sums alternate between the output and a scratch buffer of the same size, so that one can be sent while the
// next is received. The last one is in the output.
Schedule ReduceScatter(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const int n = spec.ranks;
  const int64_t part = spec.output_elements();
  for (const Unit& unit : Units(plan, {0, part})) {
    builder.set_channel(unit.channel);
    const Ring ring = RingOfAll(n, rank, unit.channel);
    const auto input_at = [&](int step) {
      const int64_t owner = ring.members[Mod(ring.self - step - 1, n)];
      return InputRegion({owner * part + unit.at.begin, owner * part + unit.at.end});
    };
    const auto partial_at = [&](int step) {
      return (n - 2 - step) % 2 == 0 ? OutputRegion(unit.at) : ScratchRegion(unit.at);
    };
    for (int step = 0; step < n - 1; ++step) {
      builder.Send(Next(ring), step == 0 ? input_at(0) : partial_at(step - 1));
      builder.RecvReduce(Previous(ring), partial_at(step), input_at(step + 1));
    }
  }
  return builder.Finish(/*in_place=*/false, n > 2 ? part : 0);
}

Schedule AllGather(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const int n = spec.ranks;
  const int64_t part = spec.input_elements();
  builder.Copy(OutputRegion({rank * part, (rank + 1) * part}), InputRegion({0, part}));
  for (const Unit& unit : Units(plan, {0, part})) {
    builder.set_channel(unit.channel);
    const Ring ring = RingOfAll(n, rank, unit.channel);
    std::vector<Interval> parts;
    for (int64_t member : ring.members) parts.push_back({member * part + unit.at.begin, member * part + unit.at.end});
    RingAllGatherPhase(ring, parts, &builder);
  }
  return builder.Finish(/*in_place=*/false);
}

// A chain from rank 0, in which chunks are pipelined.
Schedule Broadcast(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const Interval all{0, spec.input_elements()};
  if (rank == 0) builder.Copy(OutputRegion(all), InputRegion(all));
  for (const Unit& unit : Units(plan, all)) {
    builder.set_channel(unit.channel);
    if (rank > 0) builder.Recv(rank - 1, OutputRegion(unit.at));
    if (rank + 1 < spec.ranks) builder.Send(rank + 1, OutputRegion(unit.at));
  }
  return builder.Finish(/*in_place=*/true);
}

bool Applies(const CollectiveSpec& spec) {
  if (spec.ranks < 2) return false;
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      return true;
    default:
      return false;
  }
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  auto* const build = spec.kind == CollectiveKind::kAllReduce       ? AllReduce
                      : spec.kind == CollectiveKind::kReduceScatter ? ReduceScatter
                      : spec.kind == CollectiveKind::kAllGather     ? AllGather
                                                                    : Broadcast;
  return build(plan, spec, rank);
}

// In an AllReduce, a rank sends all parts except for its own in the reduce-scatter phase, and all parts except for its
// successor's in the all-gather phase.
int64_t AllReduceSent(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int n = spec.ranks;
  const std::vector<Unit> units = Units(plan, {0, spec.input_elements()});
  return MaxOverRanks(n, [&](int rank) {
    int64_t sent = 0;
    for (const Unit& unit : units) {
      const int self = unit.channel % 2 == 1 ? n - 1 - rank : rank;
      sent += 2 * unit.at.size() - Part(unit.at, n, self).size() - Part(unit.at, n, Mod(self + 1, n)).size();
    }
    return sent;
  });
}

AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  const int64_t units = 1LL * plan.chunks * plan.channels;
  if (spec.output_elements() == 0) return {};
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
      return {2 * (n - 1), 2 * (n - 1) * units, AllReduceSent(plan, spec), count / n * (n - 1) * 2};
    case CollectiveKind::kReduceScatter:
      return {n - 1, (n - 1) * units, count / n * (n - 1), count / n * (n - 1) * 2};
    case CollectiveKind::kAllGather:
      return {n - 1, (n - 1) * units, count * (n - 1), 0};
    default:
      return {n - 1, units, count, 0};
  }
}

}  // namespace

void RingReduceScatterPhase(const Ring& ring, const std::vector<Interval>& parts, bool from_input,
                            ScheduleBuilder* builder) {
  const int n = std::ssize(ring.members);
  const auto own = [&](const Interval& part) { return from_input ? InputRegion(part) : OutputRegion(part); };
  for (int step = 0; step < n - 1; ++step) {
    const Interval out = parts[Mod(ring.self - step - 1, n)], in = parts[Mod(ring.self - step - 2, n)];
    builder->Send(Next(ring), step == 0 ? own(out) : OutputRegion(out));
    builder->RecvReduce(Previous(ring), OutputRegion(in), own(in));
  }
}

void RingAllGatherPhase(const Ring& ring, const std::vector<Interval>& parts, ScheduleBuilder* builder) {
  const int n = std::ssize(ring.members);
  for (int step = 0; step < n - 1; ++step) {
    builder->Send(Next(ring), OutputRegion(parts[Mod(ring.self - step, n)]));
    builder->Recv(Previous(ring), OutputRegion(parts[Mod(ring.self - step - 1, n)]));
  }
}

Algorithm RingAlgorithm() {
  return {"ring", "between neighbors; fewest bytes, 2(n-1) rounds for an AllReduce", Applies, Build, Cost};
}

}  // namespace xlad::collectives
