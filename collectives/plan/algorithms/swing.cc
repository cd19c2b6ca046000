// Swing: halving and doubling with peers at distances 1, 1, 3, 5, 11, ... in alternating directions, which are close in
// a ring or torus. De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024.
//
// On a grid, whose sizes must be powers of two, the exchanges alternate between the dimensions. Without a grid, ranks
// are folded to a power of two in one dimension.
#include "collectives/plan/algorithms/half_exchanges.h"
#include "collectives/plan/algorithms/rows.h"
#include "collectives/plan/grid.h"

namespace xlad::collectives {
namespace {

// Returns the exchanges among the members of `grid`: peers[s][m] is the peer of member m in exchange s.
std::vector<std::vector<int>> PeersOf(const std::vector<int>& grid) {
  int members = 1;
  for (const int size : grid) members *= size;
  std::vector<std::vector<int>> peers;
  std::vector<int64_t> distance(grid.size(), 1), length(grid.size(), 1);
  while (std::ssize(peers) < CeilLog2(members)) {
    for (size_t d = 0; d < grid.size(); ++d) {
      if (length[d] == grid[d]) continue;
      std::vector<int>& row = peers.emplace_back(members);
      for (int m = 0; m < members; ++m) {
        std::vector<int> at = CoordinatesOf(grid, m);
        at[d] = Mod(at[d] % 2 == 0 ? at[d] + distance[d] : at[d] - distance[d], grid[d]);
        row[m] = PositionIn(grid, at);
      }
      length[d] *= 2;
      distance[d] = 1 - 2 * distance[d];  // The sum of (-2)^i up to this exchange: 1, -1, 3, -5, 11, ...
    }
  }
  return peers;
}

// Returns the exchanges of one member. In each exchange, a member keeps the half for the group of members that its
// later exchanges can reach. The group that contains the smallest member of the two groups keeps the lower half.
std::vector<HalfExchange> ExchangesOf(const std::vector<std::vector<int>>& peers, int member) {
  std::vector<int> smallest(peers.empty() ? 1 : peers[0].size());
  for (int m = 0; m < std::ssize(smallest); ++m) smallest[m] = m;
  std::vector<HalfExchange> exchanges(peers.size());
  for (size_t s = peers.size(); s-- > 0;) {
    const int peer = peers[s][member];
    exchanges[s] = {peer, smallest[member] < smallest[peer] ? 0 : 1};
    std::vector<int> merged(smallest.size());
    for (size_t m = 0; m < merged.size(); ++m) merged[m] = std::min(smallest[m], smallest[peers[s][m]]);
    smallest = std::move(merged);
  }
  return exchanges;
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const Fold fold(spec.ranks, builder.position());
  const std::vector<HalfExchange> exchanges =
      ExchangesOf(PeersOf(plan.grid.empty() ? std::vector<int>{fold.members()} : plan.grid), fold.member());
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    AllReduceByHalves(fold, exchanges, unit.at, 1 + unit.chunk * (2 * fold.levels() + 3), &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  const std::string grid = RefuseGrid(plan, spec.ranks, std::ssize(plan.grid));
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
      .cost = CostByHalves,
      .uses_grid = true};
}

}  // namespace xlad::collectives
