// Declares the function of every row of algorithms.def.
#pragma once

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {

#define XLAD_ALGORITHM(function) Algorithm function();
#include "collectives/plan/algorithms/algorithms.def"
#undef XLAD_ALGORITHM

}  // namespace xlad::collectives
