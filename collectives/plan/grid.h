// Grids of ranks.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

// The grid of the plan, or the one with the most equal sizes if the plan has none: smaller sizes first, so that a prime
// n gives 1 x n.
std::vector<int> GridOf(const CollectivePlan& plan, int ranks, int dimensions);

// "" if the plan has no grid, or one of that many dimensions whose product is `ranks`; otherwise what is expected.
std::string RefuseGrid(const CollectivePlan& plan, int ranks, int dimensions);

// Position p has the coordinates p % X, p / X % Y, ...
std::vector<int> CoordinatesOf(const std::vector<int>& grid, int position);
int PositionIn(const std::vector<int>& grid, const std::vector<int>& coordinates);

}  // namespace xlad::collectives
