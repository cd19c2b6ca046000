// Direct access to the memory of peers (windows): each element is read from all ranks, reduced once, in order of the
// ranks, and stored to all its destinations, in a single pass without messages. Hashmi et al., "Designing efficient
// shared address space reduction collectives for multi-/many-cores", IPDPS 2018.
//
// A rank signals "entered" (flag 0) to the peers that touch its memory, and these signal "done" (flag 1) afterwards.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

constexpr int kEntered = 0;
constexpr int kDone = 1;

// The peers whose memory this rank touches, and those that touch its memory.
struct Peers {
  bool reads_all = false;  // This rank touches all peers.
  bool is_read_by_all = false;
  bool reads_root = false;
  bool is_read_by_root = false;
};

Peers PeersOf(const CollectiveSpec& spec, bool is_root) {
  switch (spec.kind) {
    case Kind::kBroadcast:
    case Kind::kScatter:
      return is_root ? Peers{.is_read_by_all = true} : Peers{.reads_root = true};
    case Kind::kReduce:
    case Kind::kGather:
      return is_root ? Peers{.reads_all = true} : Peers{.is_read_by_root = true};
    default:
      return {.reads_all = true, .is_read_by_all = true};
  }
}

template <typename F>
void ForEach(bool all, bool root, const ScheduleBuilder& builder, const F& f) {
  if (root) f(0);
  for (int d = 1; all && d < builder.ranks(); ++d) f(Mod(int64_t{builder.position()} + d, builder.ranks()));
}

// All ranks' inputs at these elements, in order of the ranks.
std::vector<ReduceSource> Inputs(const ScheduleBuilder& builder, Interval at) {
  std::vector<ReduceSource> sources(builder.ranks());
  for (int rank = 0; rank < builder.ranks(); ++rank) {
    sources[rank].region = InputRegion(at);
    if (rank != builder.rank()) sources[rank].region.rank = rank;
  }
  return sources;
}

void AllReduce(Interval all, ScheduleBuilder* builder) {
  const Interval at = Part(all, builder->ranks(), builder->position());
  std::vector<Region> others;
  for (int rank = 0; rank < builder->ranks(); ++rank) {
    if (rank != builder->rank()) others.push_back(OnRank(OutputRegion(at), rank));
  }
  builder->Reduce(OutputRegion(at), Inputs(*builder, at), others);
}

// The copies of the kinds that do not reduce. `from` is a rank.
void CopyFrom(int from, Region dst, Region src, ScheduleBuilder* builder) {
  builder->Copy(dst, from == builder->rank() ? src : OnRank(src, from));
}

void Access(const CollectivePlan& plan, const CollectiveSpec& spec, const Unit& unit, ScheduleBuilder* builder) {
  const int self = builder->position();
  const auto part = [&](int p) { return UnitOf(plan, unit, builder->PartAt(p)); };
  const Interval own = UnitOf(plan, unit, {0, builder->PartAt(self).size()});
  switch (spec.kind) {
    case Kind::kAllReduce:
      return AllReduce(unit.at, builder);
    case Kind::kReduceScatter:
      return builder->Reduce(OutputRegion(own), Inputs(*builder, part(self)));
    case Kind::kReduce:
      return self == 0 ? builder->Reduce(OutputRegion(unit.at), Inputs(*builder, unit.at)) : void();
    case Kind::kBroadcast:
      return CopyFrom(spec.root, OutputRegion(unit.at), InputRegion(unit.at), builder);
    case Kind::kScatter:
      return CopyFrom(spec.root, OutputRegion(own), InputRegion(part(self)), builder);
    case Kind::kAllToAll: {
      // Part `rank` of each peer's input.
      for (int d = 0; d < spec.ranks; ++d) {
        const int p = Mod(int64_t{self} + d, spec.ranks);
        CopyFrom(builder->positions().RankAt(p), OutputRegion(part(p)), InputRegion(part(self)), builder);
      }
      return;
    }
    default:  // AllGather, and Gather on the root.
      if (spec.kind == Kind::kGather && self != 0) return;
      for (int d = 0; d < spec.ranks; ++d) {
        const int p = Mod(int64_t{self} + d, spec.ranks);
        const Interval theirs = UnitOf(plan, unit, {0, builder->PartAt(p).size()});
        CopyFrom(builder->positions().RankAt(p), OutputRegion(part(p)), InputRegion(theirs), builder);
      }
  }
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const Peers peers = PeersOf(spec, builder.position() == 0);
  const bool has_parts = InputHasParts(spec.kind) || OutputHasParts(spec.kind);
  for (int channel = 0; channel < plan.channels; ++channel) {
    builder.set_channel(channel);
    const int entered = 2 * channel + kEntered, done = 2 * channel + kDone;
    ForEach(peers.is_read_by_all, peers.is_read_by_root, builder, [&](int p) { builder.Signal(p, entered); });
    ForEach(peers.reads_all, peers.reads_root, builder, [&](int p) { builder.Wait(p, entered); });
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      const Interval all{0, has_parts ? 0 : spec.input_elements()};
      Access(plan, spec, {channel, chunk, Part(Part(all, plan.channels, channel), plan.chunks, chunk)}, &builder);
    }
    ForEach(peers.reads_all, peers.reads_root, builder, [&](int p) { builder.Signal(p, done); });
    ForEach(peers.is_read_by_all, peers.is_read_by_root, builder, [&](int p) { builder.Wait(p, done); });
  }
  return builder.Finish(/*in_place=*/true);
}

// No messages: a rank reads its share of all inputs.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  AlgorithmCost cost{.window_elements = count, .signal_rounds = 2};
  if (Reduces(spec.kind)) {
    cost.reduced_elements = spec.kind == Kind::kReduce ? n * count : EvenElements(plan, count, n);
    cost.window_elements = cost.reduced_elements / n * (n - 1);
  }
  return cost;
}

std::string Refuses(const CollectivePlan&, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (spec.kind == Kind::kAllToAll && !spec.sizes.empty()) return "parts of equal size";
  return RefuseKinds(spec, {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather, Kind::kAllToAll, Kind::kBroadcast,
                            Kind::kReduce, Kind::kGather, Kind::kScatter});
}

}  // namespace

Algorithm DirectWindowAlgorithm() {
  return {.name = "direct_window",
          .summary = "single pass over the mapped memory of all ranks, without messages",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost,
          .needs_windows = true,
          .is_canonical = [](const CollectiveSpec&) { return true; },
          .reduces_once = true};
}

}  // namespace xlad::collectives
