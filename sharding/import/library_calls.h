// Custom calls to LAPACK, as JAX writes them for CPUs, become HLO that can be sharded, partitioned and compiled: potrf
// becomes cholesky, trsm becomes triangular-solve, and getrf, geqrf, orgqr and syevd become calls of loops
// (matrix_loops.h). Other custom calls are not changed.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// Replaces the calls in all computations of the module.
void ReplaceLibraryCalls(hlo::Module* module);

}  // namespace xlad::sharding
