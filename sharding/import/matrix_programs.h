// HLO programs of matrix factorizations, as text with placeholders for sizes and types.
//
// In every program $B is the number of matrices in the batch, $M and $N are the rows and columns of a matrix, and $T is
// the element type, f32 or f64. The entry computation takes LAPACK's operands and returns LAPACK's results with the
// dimensions of the batch joined into one.
//
// LAPACK scales its data before it squares anything, so that vectors of 1e25 or of 1e-25 neither overflow nor vanish.
// These programs do the same: if the largest magnitude is outside [$LOW, $HIGH] (and not 0), they divide by it first
// and multiply the result by it. Between the two limits they compute without scaling. The limits are far enough inside
// the range of the type that sums of millions of squares are finite, and that a square that underflows is too small to
// count.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "tensor/element_type.h"

namespace xlad::sharding {

struct MatrixProgramSizes {
  int64_t batch = 1, rows = 1, columns = 1;
  int64_t reflectors = 1;  // The number of elements of tau: of Qr's second result, or orgqr's second operand.
  bool upper = false;      // For syevd: the upper triangle of the operand is used, not the lower one.
};

// The text of the module for "getrf", "geqrf", "orgqr" or "syevd" (without LAPACK's letter for the type); empty for any
// other routine. `type` is kF32 or kF64.
//
//   getrf  (A)      -> (L and U, pivots, info)       LU with partial pivoting
//   geqrf  (A)      -> (R and reflectors, tau)       QR by Householder reflectors
//   orgqr  (A, tau) -> (Q)                           Q from the reflectors
//   syevd  (A)      -> (vectors, values, info)       eigenvalues of a symmetric matrix by Jacobi rotations
std::string MatrixProgram(absl::string_view routine, tensor::ElementType type, const MatrixProgramSizes& sizes);

}  // namespace xlad::sharding
