// LAPACK calls without an opcode become HLO loops, which can be sharded, partitioned and compiled like any other op.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// Adds a call of a loop that computes what `call` computes, and returns the value that replaces `call`. `call` is a
// call to LAPACK's getrf, geqrf, orgqr or syevd for f32 or f64, as JAX writes them; for any other call the result is
// null and nothing is added. The results are LAPACK's up to rounding, eigenvectors also up to their sign. The
// algorithms are explained in matrix_programs.cc.
//
//   c = (f32[9,4,4], f32[9,4]) custom-call(x), custom_call_target="lapack_sgeqrf_ffi"
//
// becomes a call of a computation with one while loop of 4 steps, each of which does a Householder reflection of all 9
// matrices. Several dimensions of batch are joined into one around the loop.
hlo::Instruction* AddMatrixLoop(hlo::Instruction* call, hlo::Module* module);

}  // namespace xlad::sharding
