// Custom calls to the routine trsm, as JAX writes them for CPUs, become triangular-solve, whose right-hand sides can be
// split. Calls to other LAPACK routines only lose their layouts and aliases, which describe global arrays. Their batch
// dimensions can be split (sharding/rules/other.cc), and the runtime calls the library.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// Replaces the calls in all computations of the module.
void ReplaceLibraryCalls(hlo::Module* module);

}  // namespace xlad::sharding
