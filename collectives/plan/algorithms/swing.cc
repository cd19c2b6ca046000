// Swing: halving and doubling with peers at distances 1, 1, 3, 5, 11, ... in alternating directions, which are close in
// a ring or torus. De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024.
//
// On a grid whose sizes are powers of two, the exchanges alternate between the dimensions. Otherwise ranks are folded
// to a power of two in one dimension.
#include "collectives/plan/algorithms/fold.h"
#include "collectives/plan/algorithms/rows.h"
#include "collectives/plan/grid.h"

namespace xlad::collectives {
namespace {

// The exchanges among `grid` members: peers[s][m] is the peer of member m in exchange s.
std::vector<std::vector<int>> PeersOf(const std::vector<int>& grid) {
  int members = 1;
  for (const int size : grid) members *= size;
  std::vector<std::vector<int>> peers;
  std::vector<int64_t> distance(grid.size(), 1), length(grid.size(), 1);
  while (static_cast<int>(peers.size()) < CeilLog2(members)) {
    for (size_t d = 0; d < grid.size(); ++d) {
      if (length[d] == grid[d]) continue;
      std::vector<int>& row = peers.emplace_back(members);
      for (int m = 0; m < members; ++m) {
        std::vector<int> at = CoordinatesOf(grid, m);
        at[d] = Mod(at[d] % 2 == 0 ? at[d] + distance[d] : at[d] - distance[d], grid[d]);
        row[m] = PositionIn(grid, at);
      }
      length[d] *= 2;
      distance[d] = 1 - 2 * distance[d];  // The sum of (-2)^i up to the exchange: 1, -1, 3, -5, 11, ...
    }
  }
  return peers;
}

// halves[s] is the half that the member keeps in exchange s: the half of the group of members that can still be reached
// from it by later exchanges. The group with the smallest member keeps the lower half.
std::vector<int> HalvesOf(const std::vector<std::vector<int>>& peers, int member) {
  std::vector<int> smallest(peers.empty() ? 1 : peers[0].size());
  for (size_t m = 0; m < smallest.size(); ++m) smallest[m] = static_cast<int>(m);
  std::vector<int> halves(peers.size());
  for (size_t s = peers.size(); s-- > 0;) {
    halves[s] = smallest[member] < smallest[peers[s][member]] ? 0 : 1;
    std::vector<int> merged(smallest.size());
    for (size_t m = 0; m < merged.size(); ++m) merged[m] = std::min(smallest[m], smallest[peers[s][m]]);
    smallest = std::move(merged);
  }
  return halves;
}

void Run(const Fold& fold, const std::vector<std::vector<int>>& peers, Interval all, int64_t round,
         ScheduleBuilder* builder) {
  const int self = builder->position(), levels = static_cast<int>(peers.size());
  builder->At(round);
  if (fold.is_folded()) {
    builder->Send(self - 1, InputRegion(all));
    builder->At(round + 1 + 2 * levels);
    return builder->Recv(self - 1, OutputRegion(all));
  }
  bool is_input = true;
  const auto own = [&](Interval at) { return is_input ? InputRegion(at) : OutputRegion(at); };
  if (fold.has_folded()) {
    builder->RecvReduceInOrder(self + 1, OutputRegion(all), InputRegion(all));
    is_input = false;
  }
  const std::vector<int> halves = HalvesOf(peers, fold.member());
  std::vector<Interval> left = {all};
  for (int level = 0; level < levels; ++level) {
    builder->At(++round);
    const int peer = fold.PositionOf(peers[level][fold.member()]);
    const Interval kept = Part(left.back(), 2, halves[level]), given = Part(left.back(), 2, 1 - halves[level]);
    builder->Send(peer, own(given));
    builder->RecvReduceInOrder(peer, OutputRegion(kept), own(kept));
    is_input = false;
    left.push_back(kept);
  }
  for (int level = levels - 1; level >= 0; --level) {
    builder->At(++round);
    const int peer = fold.PositionOf(peers[level][fold.member()]);
    builder->Send(peer, OutputRegion(left[level + 1]));
    builder->Recv(peer, OutputRegion(Part(left[level], 2, 1 - halves[level])));
  }
  builder->At(++round);
  if (fold.has_folded()) builder->Send(self + 1, OutputRegion(all));
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const Fold fold(spec.ranks, builder.position());
  const std::vector<std::vector<int>> peers = PeersOf(plan.grid.empty() ? std::vector<int>{fold.members()} : plan.grid);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    Run(fold, peers, unit.at, 1 + int64_t{unit.chunk} * (2 * fold.levels() + 3), &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

// As halving and doubling.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements(), units = NumUnits(plan);
  if (count == 0) return {};
  const Fold fold(spec.ranks, 0);
  const int64_t m = fold.members(), levels = fold.levels();
  const int64_t part = EvenElements(plan, count, m) / m, extra = fold.any_folded() ? 1 : 0;
  const int64_t sent = 2 * (m - 1) * part + extra * m * part;
  return {2 * levels + 2 * extra, (2 * levels + extra) * units, sent, 2 * (m - 1 + extra * m) * part};
}

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  const std::string grid = RefuseGrid(plan, spec.ranks, static_cast<int>(plan.grid.size()));
  if (!grid.empty()) return grid;
  for (const int size : plan.grid) {
    if (!IsPowerOfTwo(size)) return "a grid whose sizes are powers of two";
  }
  return RefuseKinds(spec, {CollectiveKind::kAllReduce});
}

}  // namespace

Algorithm SwingAlgorithm() {
  return {
      .name = "swing",
      .summary = "halving and doubling with peers that are close in a ring or torus; fewest bytes in 2 log n rounds",
      .refuses = Refuses,
      .build = Build,
      .cost = Cost};
}

}  // namespace xlad::collectives
