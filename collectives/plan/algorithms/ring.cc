// Rings: each rank exchanges messages only with its two neighbors. Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 2009.
//
// Odd channels use the ring in reverse, so both directions of each link carry data. Each message is split into chunks.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// The ring of a channel, as seen by one rank.
struct Ring {
  int n;
  int self;
  int direction;  // 1 or -1.
  int next() const { return Mod(self + direction, n); }
  int previous() const { return Mod(self - direction, n); }
  // Returns the position `steps` before this one in the direction of the ring.
  int Before(int steps) const { return Mod(self - direction * steps, n); }
};

// `part(p)` is the share of position p. Each position has its own share at the start, and all shares at the end.
template <typename PartOf>
void AllGatherRounds(const Ring& ring, int first_round, const PartOf& part, ScheduleBuilder* builder) {
  for (int step = 0; step < ring.n - 1; ++step) {
    builder->At(first_round + step);
    builder->Send(ring.next(), OutputRegion(part(ring.Before(step))));
    builder->Recv(ring.previous(), OutputRegion(part(ring.Before(step + 1))));
  }
}

void AllReduce(const Ring& ring, int round, Interval all, ScheduleBuilder* builder) {
  const auto part = [&](int p) { return Part(all, ring.n, p); };
  for (int step = 0; step < ring.n - 1; ++step) {
    const Interval out = part(ring.Before(step + 1)), in = part(ring.Before(step + 2));
    builder->At(round + step);
    builder->Send(ring.next(), step == 0 ? InputRegion(out) : OutputRegion(out));
    builder->RecvReduce(ring.previous(), OutputRegion(in), InputRegion(in));
  }
  AllGatherRounds(ring, round + ring.n - 1, part, builder);
}

// Partial results alternate between two scratch buffers of the size of the largest part, so one partial result can be
// sent while the next one is received. The last partial result is in the output.
template <typename PartOf>
void ReduceScatter(const Ring& ring, int round, const PartOf& part, const Interval (&scratch)[2],
                   ScheduleBuilder* builder) {
  const Interval share = part(ring.self);
  const Interval own{share.begin - builder->PartBegin(), share.end - builder->PartBegin()};
  const auto partial = [&](int step) {
    const int64_t size = part(ring.Before(step + 2)).size();
    const int64_t begin = scratch[step % 2].begin;
    return step == ring.n - 2 ? OutputRegion(own) : ScratchRegion({begin, begin + size});
  };
  for (int step = 0; step < ring.n - 1; ++step) {
    builder->At(round + step);
    builder->Send(ring.next(), step == 0 ? InputRegion(part(ring.Before(1))) : partial(step - 1));
    builder->RecvReduce(ring.previous(), partial(step), InputRegion(part(ring.Before(step + 2))));
  }
}

// Sends chunks along a chain from the root, pipelined.
void Broadcast(const Ring& ring, int round, Interval at, ScheduleBuilder* builder) {
  const int place = Mod(ring.direction * ring.self, ring.n);
  builder->At(round + place);
  if (place == 0) builder->Copy(OutputRegion(at), InputRegion(at));
  if (place > 0) builder->Recv(ring.previous(), OutputRegion(at));
  builder->At(round + place + 1);
  if (place + 1 < ring.n) builder->Send(ring.next(), place == 0 ? InputRegion(at) : OutputRegion(at));
}

// Reduces chunks along a chain to the root, pipelined.
void Reduce(const Ring& ring, int round, Interval at, ScheduleBuilder* builder) {
  // The root is the last rank of the chain.
  const int place = Mod(ring.direction * (ring.self - ring.direction), ring.n);
  const Region partial = ring.self == 0 ? OutputRegion(at) : ScratchRegion(at);
  builder->At(round + place);
  if (place > 0) builder->RecvReduce(ring.previous(), partial, InputRegion(at));
  builder->At(round + place + 1);
  if (place + 1 < ring.n) builder->Send(ring.next(), place == 0 ? InputRegion(at) : partial);
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const int n = spec.ranks, self = builder.position();
  const bool has_parts = InputHasParts(spec.kind) || OutputHasParts(spec.kind);
  const int64_t own_size = has_parts ? builder.PartAt(self).size() : 0;
  int64_t largest = 0;
  if (spec.kind == Kind::kReduceScatter) largest = LargestPart(spec);
  if (spec.kind == Kind::kReduce && self != 0) builder.Scratch(spec.input_elements());
  for (const Unit& unit : Units(plan, {0, has_parts ? 0 : spec.input_elements()})) {
    builder.set_channel(unit.channel);
    const Ring ring{n, self, unit.channel % 2 == 0 ? 1 : -1};
    const auto part = [&](int p) { return UnitOf(plan, unit, builder.PartAt(p)); };
    const bool is_chain = spec.kind == Kind::kBroadcast || spec.kind == Kind::kReduce;
    const int round = 1 + (is_chain ? unit.chunk : 2 * n * unit.chunk);
    switch (spec.kind) {
      case Kind::kAllReduce:
        AllReduce(ring, round, unit.at, &builder);
        break;
      case Kind::kReduceScatter: {
        const int64_t unit_size = UnitOf(plan, unit, {0, largest}).size();
        const Interval scratch[2] = {builder.Scratch(n > 2 ? unit_size : 0), builder.Scratch(n > 3 ? unit_size : 0)};
        ReduceScatter(ring, round, part, scratch, &builder);
        break;
      }
      case Kind::kAllGather:
        builder.At(round - 1);
        builder.Copy(OutputRegion(part(self)), InputRegion(UnitOf(plan, unit, {0, own_size})));
        AllGatherRounds(ring, round, part, &builder);
        break;
      case Kind::kBroadcast:
        Broadcast(ring, round, unit.at, &builder);
        break;
      default:
        Reduce(ring, round, unit.at, &builder);
    }
  }
  return builder.Finish(/*in_place=*/true);
}

// In an AllReduce, a rank sends n - 1 parts in the reduce-scatter phase and n - 1 in the all-gather phase. Chains send
// all elements once: k chunks pass n - 1 links in n - 2 + k rounds.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements(), units = NumUnits(plan);
  if (spec.output_elements() == 0) return {};
  switch (spec.kind) {
    case Kind::kAllReduce: {
      const int64_t part = EvenElements(plan, count, n) / n;
      return {2 * (n - 1), 2 * (n - 1) * units, 2 * (n - 1) * part, 2 * (n - 1) * part};
    }
    case Kind::kReduceScatter:
      return {n - 1, (n - 1) * units, (n - 1) * LargestPart(spec), 2 * (n - 1) * LargestPart(spec)};
    case Kind::kAllGather:
      return {n - 1, (n - 1) * units, (n - 1) * LargestPart(spec)};
    case Kind::kReduce:
      return {.rounds = n - 1,
              .messages = units,
              .sent_elements = count,
              .reduced_elements = 2 * count,
              .pipeline_rounds = plan.chunks - 1,
              .round_elements = count};
    default:
      return {.rounds = n - 1,
              .messages = units,
              .sent_elements = count,
              .pipeline_rounds = plan.chunks - 1,
              .round_elements = count};
  }
}

}  // namespace

Algorithm RingAlgorithm() {
  return {.name = "ring",
          .summary = "between neighbors, odd channels in reverse; fewest bytes, 2(n-1) rounds for an AllReduce",
          .refuses =
              [](const CollectivePlan&, const CollectiveSpec& spec) {
                return spec.ranks < 2 ? "2 or more ranks"
                                      : RefuseKinds(spec, {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather,
                                                           Kind::kBroadcast, Kind::kReduce});
              },
          .build = Build,
          .cost = Cost};
}

}  // namespace xlad::collectives
