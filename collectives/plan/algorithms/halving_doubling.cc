// Recursive halving and doubling: ranks at distances 1, 2, 4, ... exchange halves of their remaining intervals, and
// then gather in reverse order. If n is a power of two, an AllReduce sends 2 (n - 1) / n of the data in 2 log2 n
// rounds. Rabenseifner, "Optimization of collective reduction operations", 2004.
#include "collectives/plan/algorithms/half_exchanges.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// The peer of exchange s is the member whose number differs only in bit s.
std::vector<HalfExchange> ExchangesOf(const Fold& fold) {
  std::vector<HalfExchange> exchanges;
  for (int level = 0; level < fold.levels(); ++level) {
    exchanges.push_back({fold.member() ^ (1 << level), fold.member() >> level & 1});
  }
  return exchanges;
}

// At each level, a rank sends its peer the parts of the ranks that agree with the peer in the bits of all levels up to
// this one. The first level has the highest bit, so these parts are adjacent. In canonical order, the first level has
// the lowest bit.
void ReduceScatter(const CollectivePlan& plan, const CollectiveSpec& spec, const Unit& unit, const Interval& scratch,
                   ScheduleBuilder* builder) {
  const int self = builder->position(), levels = CeilLog2(spec.ranks);
  int64_t round = 1 + unit.chunk * (levels + 1);
  int mask = 0;
  const auto parts = [&](int peer) {
    std::vector<Interval> out;
    for (int p = 0; p < spec.ranks; ++p) {
      if ((p & mask) == (peer & mask)) out.push_back(UnitOf(plan, unit, builder->PartAt(p)));
    }
    return Merged(std::move(out));
  };
  for (int level = 0; level < levels; ++level, ++round) {
    const int bit = 1 << (spec.mode == ReductionMode::kCanonical ? level : levels - 1 - level), peer = self ^ bit;
    mask |= bit;
    const auto own = [&](Interval at) {
      return level == 0 ? InputRegion(at) : ScratchRegion({scratch.begin + at.begin, scratch.begin + at.end});
    };
    const std::vector<Interval> given = parts(peer), kept = parts(self);
    for (int i = 0; i < std::ssize(given); ++i) {
      builder->At(round, i);
      builder->Send(peer, own(given[i]));
    }
    for (int i = 0; i < std::ssize(kept); ++i) {
      builder->At(round, i);
      const int64_t begin = builder->PartBegin();
      const Region result = level + 1 == levels
                                ? OutputRegion({kept[i].begin - begin, kept[i].end - begin})
                                : ScratchRegion({scratch.begin + kept[i].begin, scratch.begin + kept[i].end});
      builder->RecvReduceInOrder(peer, result, own(kept[i]));
    }
  }
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const Fold fold(spec.ranks, builder.position());
  const std::vector<HalfExchange> exchanges = ExchangesOf(fold);
  const bool all_reduce = spec.kind == Kind::kAllReduce;
  const Interval scratch = builder.Scratch(all_reduce ? 0 : spec.input_elements());
  for (const Unit& unit : Units(plan, {0, all_reduce ? spec.input_elements() : 0})) {
    builder.set_channel(unit.channel);
    if (all_reduce) {
      AllReduceByHalves(fold, exchanges, unit.at, 1 + unit.chunk * (2 * fold.levels() + 3), &builder);
    } else {
      ReduceScatter(plan, spec, unit, scratch, &builder);
    }
  }
  return builder.Finish(/*in_place=*/true);
}

AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  if (spec.kind == Kind::kAllReduce) return CostByHalves(plan, spec);
  const int64_t levels = CeilLog2(spec.ranks), sent = (spec.ranks - 1) * LargestPart(spec);
  return {levels, levels * NumUnits(plan), sent, 2 * sent};
}

std::string Refuses(const CollectivePlan&, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (spec.kind == Kind::kReduceScatter && !IsPowerOfTwo(spec.ranks)) {
    return "a number of ranks that is a power of two";
  }
  return RefuseKinds(spec, {Kind::kAllReduce, Kind::kReduceScatter});
}

}  // namespace

Algorithm HalvingDoublingAlgorithm() {
  return {.name = "halving_doubling",
          .summary = "exchanges of halves at distances 1, 2, 4, ...; fewest bytes in 2 log n rounds",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost,
          .is_canonical = [](const CollectiveSpec& spec) { return IsPowerOfTwo(spec.ranks); }};
}

}  // namespace xlad::collectives
