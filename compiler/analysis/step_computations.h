// The computations whose instructions run as steps, and the instructions in them that do not.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The entry computation and, recursively, the conditions, bodies and branches of whiles and conditionals in it; callees
// before callers. Reducers, comparators and fused computations are not step computations.
std::vector<Computation*> StepComputations(const Module& module);

// Whether the instruction only names values: it takes no time and makes no buffer of its own.
bool IsTransparent(const Instruction& instruction);

}  // namespace xlad::compiler
