// Custom calls to LAPACK, as JAX writes them for CPUs, that have an opcode of their own become it, so that they are
// sharded, partitioned and compiled as it is: potrf a cholesky, trsm a triangular-solve. getrf, geqrf, orgqr and syevd
// become loops (matrix_loops.h), called. Others stay what they are.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

void ReplaceLibraryCalls(hlo::Module* module);

}  // namespace xlad::sharding
