// Factorisations without an opcode of their own, written as HLO: one loop over columns (LU, QR) or over pairs of
// columns (eigenvalues), each step a few ops on all matrices of the batch. So they are sharded, partitioned and
// compiled like everything else.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// A frontend attribute of copies at the borders of these loops: all dimensions but the first stay whole.
inline constexpr char kWholeMatrices[] = "xlad.whole_matrices";

// What a call of JAX's to LAPACK's getrf, geqrf, orgqr or syevd gives, for f32 and f64; nullptr where it is no such
// call. Results are LAPACK's up to rounding; eigenvectors up to their sign.
//   LU: partial pivoting, right-looking. QR: Householder's reflectors. Eigenvalues: Jacobi's rotations, cyclic by rows
//   (Golub and Van Loan, "Matrix computations", sections 3.4, 5.2 and 8.5).
hlo::Instruction* ReplaceByLoop(hlo::Instruction* call, hlo::Module* module);

}  // namespace xlad::sharding
