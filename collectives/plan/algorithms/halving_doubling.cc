// Recursive halving and doubling: ranks at distances 1, 2, 4, ... exchange halves of what they have left, and then
// gather in reverse. Few bytes in few rounds. Rabenseifner, "Optimization of collective reduction operations", 2004.
#include "collectives/plan/algorithms/fold.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

void AllReduce(const Fold& fold, Interval all, int64_t round, ScheduleBuilder* builder) {
  const int self = builder->position();
  builder->At(round);
  if (fold.is_folded()) {
    builder->Send(self - 1, InputRegion(all));
    builder->At(round + 1 + 2 * fold.levels());
    return builder->Recv(self - 1, OutputRegion(all));
  }
  bool is_input = true;
  const auto own = [&](Interval at) { return is_input ? InputRegion(at) : OutputRegion(at); };
  if (fold.has_folded()) {
    builder->RecvReduceInOrder(self + 1, OutputRegion(all), InputRegion(all));
    is_input = false;
  }
  std::vector<Interval> left = {all};  // What this rank has after each level.
  for (int level = 0; level < fold.levels(); ++level) {
    builder->At(++round);
    const int bit = fold.member() >> level & 1, peer = fold.PositionOf(fold.member() ^ (1 << level));
    const Interval kept = Part(left.back(), 2, bit), given = Part(left.back(), 2, 1 - bit);
    builder->Send(peer, own(given));
    builder->RecvReduceInOrder(peer, OutputRegion(kept), own(kept));
    is_input = false;
    left.push_back(kept);
  }
  for (int level = fold.levels() - 1; level >= 0; --level) {
    builder->At(++round);
    const int bit = fold.member() >> level & 1, peer = fold.PositionOf(fold.member() ^ (1 << level));
    builder->Send(peer, OutputRegion(left[level + 1]));
    builder->Recv(peer, OutputRegion(Part(left[level], 2, 1 - bit)));
  }
  builder->At(++round);
  if (fold.has_folded()) builder->Send(self + 1, OutputRegion(all));
}

// At each level, a rank gives away the parts of the ranks that agree with its peer in the bits of all levels so far.
// The highest bit comes first, so that these parts are adjacent; in canonical order the lowest.
void ReduceScatter(const CollectivePlan& plan, const CollectiveSpec& spec, const Unit& unit, const Interval& scratch,
                   ScheduleBuilder* builder) {
  const int self = builder->position(), levels = CeilLog2(spec.ranks);
  int64_t round = 1 + int64_t{unit.chunk} * (levels + 1);
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
    for (size_t i = 0; i < given.size(); ++i) {
      builder->At(round, static_cast<int>(i));
      builder->Send(peer, own(given[i]));
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      builder->At(round, static_cast<int>(i));
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
  const bool all_reduce = spec.kind == Kind::kAllReduce;
  const Interval scratch = builder.Scratch(all_reduce ? 0 : spec.input_elements());
  for (const Unit& unit : Units(plan, {0, all_reduce ? spec.input_elements() : 0})) {
    builder.set_channel(unit.channel);
    if (all_reduce) {
      AllReduce(fold, unit.at, 1 + int64_t{unit.chunk} * (2 * fold.levels() + 3), &builder);
    } else {
      ReduceScatter(plan, spec, unit, scratch, &builder);
    }
  }
  return builder.Finish(/*in_place=*/true);
}

// AllReduce: 2 (m - 1) / m of the elements for the largest power of two m <= n, and all elements once more if ranks are
// folded.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements(), units = NumUnits(plan);
  const Fold fold(spec.ranks, 0);
  const int64_t m = fold.members(), levels = fold.levels();
  if (spec.kind == Kind::kReduceScatter) {
    const int64_t sent = (m - 1) * LargestPart(spec);
    return {levels, levels * units, sent, 2 * sent};
  }
  if (count == 0) return {};
  const int64_t part = EvenElements(plan, count, m) / m, extra = fold.any_folded() ? 1 : 0;
  const int64_t sent = 2 * (m - 1) * part + extra * m * part;
  return {2 * levels + 2 * extra, (2 * levels + extra) * units, sent, 2 * (m - 1 + extra * m) * part};
}

std::string Refuses(const CollectivePlan&, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (spec.kind == Kind::kReduceScatter && !IsPowerOfTwo(spec.ranks)) return "a power of two of ranks";
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
