// Grids of ranks.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

// Returns the grid of the plan. If the plan has no grid, chooses similar sizes, one after the other. Let n be the
// number of ranks divided by the sizes chosen so far, and k the number of dimensions without a size. The next size is
// the largest divisor d of n with d^k <= n. In two dimensions, 12 ranks have the grid 3 x 4, and a prime number n of
// ranks has the grid 1 x n.
std::vector<int> GridOf(const CollectivePlan& plan, int ranks, int dimensions);

// Returns "" if the plan has no grid, or if its grid has `dimensions` sizes whose product is `ranks`. Otherwise returns
// what is expected.
std::string RefuseGrid(const CollectivePlan& plan, int ranks, int dimensions);

// Returns the coordinates of position p: p % X, p / X % Y, ...
std::vector<int> CoordinatesOf(const std::vector<int>& grid, int position);
int PositionIn(const std::vector<int>& grid, const std::vector<int>& coordinates);

// Returns the position whose coordinates are those of `to` minus those of `from`, modulo the sizes of the grid. In a
// grid whose dimensions all wrap around, it is as far from position 0 as `to` is from `from`.
int DifferenceIn(const std::vector<int>& grid, int from, int to);

}  // namespace xlad::collectives
