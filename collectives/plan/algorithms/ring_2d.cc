// Rings along the rows and columns of a grid: as few bytes as one ring, in about 2(X + Y) rounds instead of 2XY. Ying
// et al., "Image classification at supercomputer scale", 2018.
//
// The ranks form a grid of X columns and Y rows in row-major order, where X is the largest divisor of n with X * X <=
// n. Even channels reduce along rows first, odd ones along columns, so that rows and columns carry data at the same
// time.
#include "collectives/plan/algorithms/ring.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

int Columns(int ranks) {
  int columns = 1;
  for (int x = 1; x * x <= ranks; ++x) {
    if (ranks % x == 0) columns = x;
  }
  return columns;
}

// The two rings of a rank. It reduces along `first`, then along `second`.
struct Rings {
  Ring first;
  Ring second;
};

Rings RingsOf(int ranks, int rank, int channel) {
  const int columns = Columns(ranks), rows = ranks / columns;
  Ring row, column;
  row.self = rank % columns;
  column.self = rank / columns;
  for (int x = 0; x < columns; ++x) row.members.push_back(column.self * columns + x);
  for (int y = 0; y < rows; ++y) column.members.push_back(y * columns + row.self);
  return channel % 2 == 0 ? Rings{row, column} : Rings{column, row};
}

Schedule BuildRank(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    const Rings rings = RingsOf(spec.ranks, rank, unit.channel);
    const std::vector<Interval> parts = Parts(unit.at, rings.first.members.size());
    const std::vector<Interval> inner = Parts(parts[rings.first.self], rings.second.members.size());
    RingReduceScatterPhase(rings.first, parts, /*from_input=*/true, &builder);
    RingReduceScatterPhase(rings.second, inner, /*from_input=*/false, &builder);
    RingAllGatherPhase(rings.second, inner, &builder);
    RingAllGatherPhase(rings.first, parts, &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

// The elements that a rank sends in both phases along a ring over `all` (see ring.cc).
int64_t Sent(const Ring& ring, Interval all) {
  const int n = std::ssize(ring.members);
  return 2 * all.size() - Part(all, n, ring.self).size() - Part(all, n, Mod(ring.self + 1, n)).size();
}

AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements(), x = Columns(spec.ranks), y = spec.ranks / x;
  if (count == 0) return {};
  const std::vector<Unit> units = Units(plan, {0, count});
  const int64_t steps = 2 * (x - 1) + 2 * (y - 1);
  AlgorithmCost cost{0, steps * std::ssize(units), 0, 2 * count};
  cost.sent_elements = MaxOverRanks(spec.ranks, [&](int rank) {
    int64_t sent = 0;
    for (const Unit& unit : units) {
      const Rings rings = RingsOf(spec.ranks, rank, unit.channel);
      const Interval part = Part(unit.at, rings.first.members.size(), rings.first.self);
      sent += Sent(rings.first, unit.at) + Sent(rings.second, part);
    }
    return sent;
  });
  cost.rounds = steps;
  return cost;
}

}  // namespace

Algorithm Ring2dAlgorithm() {
  return {"ring_2d", "rings along rows and columns; fewest bytes, 2(X+Y-2) rounds for an AllReduce",
          [](const CollectiveSpec& spec) { return spec.kind == CollectiveKind::kAllReduce && Columns(spec.ranks) > 1; },
          BuildRank, Cost};
}

}  // namespace xlad::collectives
