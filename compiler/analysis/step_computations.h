// The computations whose instructions run as steps.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The entry computation and, recursively, the conditions, bodies and branches of its whiles and conditionals. Callees
// come before callers. Reducers, comparators and fused computations are not step computations.
std::vector<Computation*> StepComputations(const Module& module);

}  // namespace xlad::compiler
