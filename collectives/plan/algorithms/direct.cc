// Direct algorithms: every rank exchanges messages with every other. They have the fewest rounds, and each element is
// reduced on one rank, in order of the ranks, with one rounding at the end.
//
// "direct" runs AllReduce in two rounds (rank j reduces part j of all ranks, then sends it to all) with as few bytes as
// a ring, and all other kinds in one. "direct_one_shot" runs AllReduce in one round for small sizes: each rank sends
// its input to all others.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

// One source per rank, in order: `own` for `rank`, messages for all others.
std::vector<ReduceSource> SourcesInOrder(int ranks, int rank, Region own) {
  std::vector<ReduceSource> sources(ranks);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) sources[peer].peer = peer;
  }
  sources[rank].region = own;
  return sources;
}

// Calls f(to, from) for the n - 1 exchanges of a rank. In each exchange, different ranks send to different peers.
template <typename F>
void ForEachPeer(int ranks, int rank, const F& f) {
  for (int distance = 1; distance < ranks; ++distance) f(Mod(rank + distance, ranks), Mod(rank - distance, ranks));
}

Schedule AllReduce(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    const std::vector<Interval> parts = Parts(unit.at, spec.ranks);
    ForEachPeer(spec.ranks, rank, [&](int to, int) { builder.Send(to, InputRegion(parts[to])); });
    builder.ReduceMany(OutputRegion(parts[rank]), SourcesInOrder(spec.ranks, rank, InputRegion(parts[rank])));
    ForEachPeer(spec.ranks, rank, [&](int to, int) { builder.Send(to, OutputRegion(parts[rank])); });
    ForEachPeer(spec.ranks, rank, [&](int, int from) { builder.Recv(from, OutputRegion(parts[from])); });
  }
  return builder.Finish(/*in_place=*/true);
}

Schedule ReduceScatter(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const int64_t part = spec.output_elements();
  for (const Unit& unit : Units(plan, {0, part})) {
    builder.set_channel(unit.channel);
    const auto part_of = [&](int64_t peer) {
      return InputRegion({peer * part + unit.at.begin, peer * part + unit.at.end});
    };
    ForEachPeer(spec.ranks, rank, [&](int to, int) { builder.Send(to, part_of(to)); });
    builder.ReduceMany(OutputRegion(unit.at), SourcesInOrder(spec.ranks, rank, part_of(rank)));
  }
  return builder.Finish(/*in_place=*/false);
}

Schedule AllGather(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const int64_t part = spec.input_elements();
  for (const Unit& unit : Units(plan, {0, part})) {
    builder.set_channel(unit.channel);
    const auto part_of = [&](int64_t peer) {
      return OutputRegion({peer * part + unit.at.begin, peer * part + unit.at.end});
    };
    ForEachPeer(spec.ranks, rank, [&](int to, int) { builder.Send(to, InputRegion(unit.at)); });
    builder.Copy(part_of(rank), InputRegion(unit.at));
    ForEachPeer(spec.ranks, rank, [&](int, int from) { builder.Recv(from, part_of(from)); });
  }
  return builder.Finish(/*in_place=*/false);
}

Schedule AllToAll(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const int64_t part = spec.input_elements() / spec.ranks;
  for (const Unit& unit : Units(plan, {0, part})) {
    builder.set_channel(unit.channel);
    const auto part_of = [&](int64_t peer) { return Interval{peer * part + unit.at.begin, peer * part + unit.at.end}; };
    builder.Copy(OutputRegion(part_of(rank)), InputRegion(part_of(rank)));
    ForEachPeer(spec.ranks, rank, [&](int to, int from) {
      builder.Send(to, InputRegion(part_of(to)));
      builder.Recv(from, OutputRegion(part_of(from)));
    });
  }
  return builder.Finish(/*in_place=*/spec.ranks == 1);
}

Schedule CollectivePermute(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  int target = -1, source = -1;
  for (const RankPair& pair : spec.pairs) {
    if (pair.source == rank) target = pair.target;
    if (pair.target == rank) source = pair.source;
  }
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    if (target >= 0 && target != rank) builder.Send(target, InputRegion(unit.at));
    if (source == rank) {
      builder.Copy(OutputRegion(unit.at), InputRegion(unit.at));
    } else if (source >= 0) {
      builder.Recv(source, OutputRegion(unit.at));
    } else {
      builder.Zero(OutputRegion(unit.at));
    }
  }
  return builder.Finish(/*in_place=*/spec.ranks == 1);
}

Schedule Broadcast(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    if (rank > 0) {
      builder.Recv(0, OutputRegion(unit.at));
      continue;
    }
    for (int peer = 1; peer < spec.ranks; ++peer) builder.Send(peer, InputRegion(unit.at));
    builder.Copy(OutputRegion(unit.at), InputRegion(unit.at));
  }
  return builder.Finish(/*in_place=*/true);
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  static constexpr decltype(&AllReduce) kByKind[] = {AllReduce, AllGather,         ReduceScatter,
                                                     AllToAll,  CollectivePermute, Broadcast};
  return kByKind[static_cast<int>(spec.kind) - 1](plan, spec, rank);
}

AlgorithmCost AllReduceCost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks;
  AlgorithmCost cost{2, 2 * (n - 1) * plan.chunks * plan.channels, 0, 0};
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    // Rank 0 has the largest part of each unit. It sends the parts of the others, and then its own part to all others.
    const int64_t own = Part(unit.at, n, 0).size();
    cost.sent_elements += unit.at.size() - own + (n - 1) * own;
    cost.reduced_elements += n * own;
  }
  return cost;
}

AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  const int64_t messages = (n - 1) * plan.chunks * plan.channels;
  if (n == 1 || count == 0) return {};
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
      return AllReduceCost(plan, spec);
    case CollectiveKind::kReduceScatter:
      return {1, messages, count / n * (n - 1), count};
    case CollectiveKind::kAllToAll:
      return {1, messages, count / n * (n - 1), 0};
    case CollectiveKind::kCollectivePermute: {
      const bool moves = std::any_of(spec.pairs.begin(), spec.pairs.end(),
                                     [](const RankPair& pair) { return pair.source != pair.target; });
      return moves ? AlgorithmCost{1, plan.chunks * plan.channels, count, 0} : AlgorithmCost{};
    }
    default:
      return {1, messages, count * (n - 1), 0};
  }
}

Schedule OneShot(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    ForEachPeer(spec.ranks, rank, [&](int to, int) { builder.Send(to, InputRegion(unit.at)); });
    builder.ReduceMany(OutputRegion(unit.at), SourcesInOrder(spec.ranks, rank, InputRegion(unit.at)));
  }
  // Not in place: the ranks would deadlock, each waiting for the others to receive its input before it overwrites that.
  return builder.Finish(/*in_place=*/false);
}

AlgorithmCost OneShotCost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  if (count == 0) return {};
  return {1, (n - 1) * plan.chunks * plan.channels, count * (n - 1), count * n};
}

}  // namespace

Algorithm DirectAlgorithm() {
  return {"direct", "all ranks with all others; fewest bytes, two rounds for an AllReduce, one for other kinds",
          [](const CollectiveSpec& spec) { return spec.kind <= CollectiveKind::kBroadcast; }, Build, Cost};
}

Algorithm OneShotAlgorithm() {
  return {"direct_one_shot", "the input of each rank to all others; one round",
          [](const CollectiveSpec& spec) { return spec.ranks > 1 && spec.kind == CollectiveKind::kAllReduce; }, OneShot,
          OneShotCost};
}

}  // namespace xlad::collectives
