// Grids of ranks.
#include "collectives/plan/grid.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

std::vector<int> GridOf(const CollectivePlan& plan, int ranks, int dimensions) {
  if (!plan.grid.empty()) return plan.grid;
  std::vector<int> grid;
  for (int left = ranks; dimensions > 0; --dimensions) {
    int best = 1;
    for (int size = 1; size <= left; ++size) {
      int64_t power = 1;
      for (int d = 0; d < dimensions; ++d) power *= size;
      if (power > left) break;
      if (left % size == 0) best = size;
    }
    if (dimensions == 1) best = left;
    grid.push_back(best);
    left /= best;
  }
  return grid;
}

std::string RefuseGrid(const CollectivePlan& plan, int ranks, int dimensions) {
  if (plan.grid.empty()) return "";
  int64_t product = 1;
  for (const int size : plan.grid) product = size > 0 ? std::min<int64_t>(product * size, int64_t{1} << 40) : 0;
  if (std::ssize(plan.grid) == dimensions && product == ranks) return "";
  return absl::StrCat("a grid of ", dimensions, " dimensions with ", ranks, " ranks");
}

std::vector<int> CoordinatesOf(const std::vector<int>& grid, int position) {
  std::vector<int> at;
  for (const int size : grid) {
    at.push_back(position % size);
    position /= size;
  }
  return at;
}

int PositionIn(const std::vector<int>& grid, const std::vector<int>& coordinates) {
  int position = 0;
  for (size_t d = grid.size(); d-- > 0;) position = position * grid[d] + coordinates[d];
  return position;
}

int DifferenceIn(const std::vector<int>& grid, int from, int to) {
  const std::vector<int> start = CoordinatesOf(grid, from);
  std::vector<int> difference = CoordinatesOf(grid, to);
  for (size_t d = 0; d < grid.size(); ++d) difference[d] = (difference[d] - start[d] + grid[d]) % grid[d];
  return PositionIn(grid, difference);
}

}  // namespace xlad::collectives
