// Direct algorithms: every rank exchanges messages with every other rank. They have the fewest rounds. Each element is
// reduced on one rank, in the order of the ranks, with one rounding at the end.
//
// "direct" runs AllReduce in two rounds with as few bytes as a ring: rank j reduces part j of all ranks, and then sends
// it to all. It runs all other kinds in one round. "pairwise" runs AllToAll as n - 1 exchanges. In each exchange, a
// rank sends to one peer and receives from one peer.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// Returns one source per rank, in order: `own` for this rank, and messages for all others.
std::vector<ReduceSource> SourcesInOrder(const ScheduleBuilder& builder, Region own) {
  std::vector<ReduceSource> sources(builder.ranks());
  for (int rank = 0; rank < builder.ranks(); ++rank) {
    if (rank != builder.rank()) sources[rank].peer = builder.positions().PositionOf(rank);
  }
  sources[builder.rank()].region = own;
  return sources;
}

// Calls f(to, from) for the n - 1 exchanges of a rank. In each exchange, different ranks send to different peers.
template <typename F>
void ForEachPeer(const ScheduleBuilder& builder, const F& f) {
  const int n = builder.ranks(), self = builder.position();
  for (int distance = 1; distance < n; ++distance) f(Mod(self + distance, n), Mod(self - distance, n));
}

void AllReduce(Interval all, ScheduleBuilder* builder) {
  const int self = builder->position();
  const std::vector<Interval> parts = Parts(all, builder->ranks());
  ForEachPeer(*builder, [&](int to, int) { builder->Send(to, InputRegion(parts[to])); });
  builder->Reduce(OutputRegion(parts[self]), SourcesInOrder(*builder, InputRegion(parts[self])));
  ForEachPeer(*builder, [&](int to, int) { builder->Send(to, OutputRegion(parts[self])); });
  ForEachPeer(*builder, [&](int, int from) { builder->Recv(from, OutputRegion(parts[from])); });
}

// `part(p)` is the share of the unit in the part of the rank at position p.
template <typename PartOf>
void ReduceScatter(Interval own, const PartOf& part, ScheduleBuilder* builder) {
  ForEachPeer(*builder, [&](int to, int) { builder->Send(to, InputRegion(part(to))); });
  builder->Reduce(OutputRegion(own), SourcesInOrder(*builder, InputRegion(part(builder->position()))));
}

template <typename PartOf>
void AllGather(Interval own, const PartOf& part, ScheduleBuilder* builder) {
  // The copy is first. After the sends, it would wait until the messages have been received, because executors order
  // operations as if input and output overlapped (in place).
  builder->Copy(OutputRegion(part(builder->position())), InputRegion(own));
  ForEachPeer(*builder, [&](int to, int) { builder->Send(to, InputRegion(own)); });
  ForEachPeer(*builder, [&](int, int from) { builder->Recv(from, OutputRegion(part(from))); });
}

void Permute(const CollectiveSpec& spec, Interval at, ScheduleBuilder* builder) {
  const int self = builder->rank();
  int target = -1, source = -1;
  for (const RankPair& pair : spec.pairs) {
    if (pair.source == self) target = pair.target;
    if (pair.target == self) source = pair.source;
  }
  const Positions& positions = builder->positions();
  if (target >= 0 && target != self) builder->Send(positions.PositionOf(target), InputRegion(at));
  if (source == self) {
    builder->Copy(OutputRegion(at), InputRegion(at));
  } else if (source >= 0) {
    builder->Recv(positions.PositionOf(source), OutputRegion(at));
  } else if (spec.kind == Kind::kCollectivePermute) {
    builder->Zero(OutputRegion(at));
  }
}

void Broadcast(Interval at, ScheduleBuilder* builder) {
  if (builder->position() > 0) {
    builder->Recv(0, OutputRegion(at));
    return;
  }
  for (int peer = 1; peer < builder->ranks(); ++peer) builder->Send(peer, InputRegion(at));
  builder->Copy(OutputRegion(at), InputRegion(at));
}

void Reduce(Interval at, ScheduleBuilder* builder) {
  if (builder->position() > 0) return builder->Send(0, InputRegion(at));
  builder->Reduce(OutputRegion(at), SourcesInOrder(*builder, InputRegion(at)));
}

template <typename PartOf>
void Gather(Interval own, const PartOf& part, ScheduleBuilder* builder) {
  if (builder->position() > 0) return builder->Send(0, InputRegion(own));
  builder->Copy(OutputRegion(part(0)), InputRegion(own));
  for (int peer = 1; peer < builder->ranks(); ++peer) builder->Recv(peer, OutputRegion(part(peer)));
}

template <typename PartOf>
void Scatter(Interval own, const PartOf& part, ScheduleBuilder* builder) {
  if (builder->position() > 0) return builder->Recv(0, OutputRegion(own));
  for (int peer = 1; peer < builder->ranks(); ++peer) builder->Send(peer, InputRegion(part(peer)));
  builder->Copy(OutputRegion(own), InputRegion(part(0)));
}

void Barrier(ScheduleBuilder* builder) {
  ForEachPeer(*builder, [&](int to, int) { builder->SendEmpty(to); });
  ForEachPeer(*builder, [&](int, int from) { builder->RecvEmpty(from); });
}

// Runs the kinds whose buffers are split into the ranks' parts.
void RunOnParts(const CollectivePlan& plan, const CollectiveSpec& spec, const Unit& unit, ScheduleBuilder* builder) {
  const auto part = [&](int position) { return UnitOf(plan, unit, builder->PartAt(position)); };
  const Interval own = UnitOf(plan, unit, {0, builder->PartAt(builder->position()).size()});
  switch (spec.kind) {
    case Kind::kReduceScatter:
      return ReduceScatter(own, part, builder);
    case Kind::kAllGather:
      return AllGather(own, part, builder);
    case Kind::kGather:
      return Gather(own, part, builder);
    default:
      return Scatter(own, part, builder);
  }
}

void RunOnAll(const CollectiveSpec& spec, Interval at, ScheduleBuilder* builder) {
  switch (spec.kind) {
    case Kind::kAllReduce:
      return AllReduce(at, builder);
    case Kind::kBroadcast:
      return Broadcast(at, builder);
    case Kind::kReduce:
      return Reduce(at, builder);
    default:
      return Permute(spec, at, builder);
  }
}

// Returns the parts that a rank sends in an AllToAll, by receiver, or the parts that it receives, by sender.
std::vector<Interval> AllToAllParts(const CollectiveSpec& spec, int64_t rank, bool sent) {
  std::vector<Interval> parts(spec.ranks);
  int64_t begin = 0;
  for (int64_t peer = 0; peer < spec.ranks; ++peer) {
    const int64_t index = sent ? rank * spec.ranks + peer : peer * spec.ranks + rank;
    const int64_t size = spec.sizes.empty() ? spec.input_elements() / spec.ranks : spec.sizes[index];
    parts[peer] = {begin, begin + size};
    begin += size;
  }
  return parts;
}

Schedule AllToAll(const CollectivePlan& plan, const CollectiveSpec& spec, int rank, bool pairwise) {
  ScheduleBuilder builder(plan, spec, rank);
  const std::vector<Interval> sent = AllToAllParts(spec, rank, true), received = AllToAllParts(spec, rank, false);
  for (const Unit& unit : Units(plan, {0, 0})) {
    builder.set_channel(unit.channel);
    const auto in = [&](int p) { return InputRegion(UnitOf(plan, unit, sent[builder.positions().RankAt(p)])); };
    const auto out = [&](int p) { return OutputRegion(UnitOf(plan, unit, received[builder.positions().RankAt(p)])); };
    builder.Copy(out(builder.position()), in(builder.position()));
    if (pairwise) {
      ForEachPeer(builder, [&](int to, int from) {
        builder.Send(to, in(to));
        builder.Recv(from, out(from));
      });
    } else {
      ForEachPeer(builder, [&](int to, int) { builder.Send(to, in(to)); });
      ForEachPeer(builder, [&](int, int from) { builder.Recv(from, out(from)); });
    }
  }
  return builder.Finish(/*in_place=*/spec.ranks == 1);
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  if (spec.kind == Kind::kAllToAll) return AllToAll(plan, spec, rank, /*pairwise=*/false);
  ScheduleBuilder builder(plan, spec, rank);
  if (spec.kind == Kind::kBarrier) {
    Barrier(&builder);
    return builder.Finish(/*in_place=*/true);
  }
  const bool has_parts = InputHasParts(spec.kind) || OutputHasParts(spec.kind);
  for (const Unit& unit : Units(plan, {0, has_parts ? 0 : spec.input_elements()})) {
    builder.set_channel(unit.channel);
    has_parts ? RunOnParts(plan, spec, unit, &builder) : RunOnAll(spec, unit.at, &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

bool Moves(const CollectiveSpec& spec) {
  return std::any_of(spec.pairs.begin(), spec.pairs.end(),
                     [](const RankPair& pair) { return pair.source != pair.target; });
}

// In an AllReduce, a rank sends n - 1 parts in each of two rounds. The other kinds have one round, in which a rank
// sends its input, or its parts, to at most n - 1 ranks. Parts of different sizes count as n parts of the largest size.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements(), units = NumUnits(plan);
  if (spec.kind == Kind::kBarrier) return {.rounds = n > 1 ? 1 : 0, .messages = n - 1};
  if (n == 1 || (count == 0 && spec.sizes.empty())) return {};
  const int64_t part = InputHasParts(spec.kind) || OutputHasParts(spec.kind) ? LargestPart(spec) : 0;
  switch (spec.kind) {
    case Kind::kAllReduce: {
      const int64_t even = EvenElements(plan, count, n);
      return {2, 2 * (n - 1) * units, 2 * (n - 1) * (even / n), even};
    }
    case Kind::kReduceScatter:
      return {1, (n - 1) * units, (n - 1) * part, n * part};
    case Kind::kAllToAll:
    case Kind::kAllGather:
    case Kind::kScatter:
      return {1, (n - 1) * units, (n - 1) * part};
    case Kind::kCollectivePermute:
    case Kind::kSendRecv:
      return Moves(spec) ? AlgorithmCost{1, units, count} : AlgorithmCost{};
    case Kind::kReduce:
      return {1, units, count, n * count};
    case Kind::kGather:
      return {1, units, part};
    default:
      return {1, (n - 1) * units, (n - 1) * count};
  }
}

}  // namespace

Algorithm DirectAlgorithm() {
  return {.name = "direct",
          .summary = "all ranks with all others; fewest bytes, two rounds for an AllReduce, one for other kinds",
          .refuses = [](const CollectivePlan&, const CollectiveSpec&) { return std::string(); },
          .build = Build,
          .cost = Cost,
          .is_canonical = [](const CollectiveSpec&) { return true; },
          .reduces_once = true};
}

Algorithm PairwiseAlgorithm() {
  return {
      .name = "pairwise",
      .summary = "n-1 exchanges with one peer each, for an AllToAll",
      .refuses = [](const CollectivePlan&, const CollectiveSpec& spec) { return RefuseKinds(spec, {Kind::kAllToAll}); },
      .build = [](const CollectivePlan& plan, const CollectiveSpec& spec,
                  int rank) { return AllToAll(plan, spec, rank, /*pairwise=*/true); },
      .cost = Cost};
}

}  // namespace xlad::collectives
