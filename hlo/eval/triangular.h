// Triangular systems of equations, for triangular-solve and LAPACK's trsm.
#pragma once

#include "hlo/eval/numeric.h"

namespace xlad::hlo::eval {

// op(A) for a triangular matrix A. The matrix is stored row-major as n x n numbers, and only one triangle is read.
template <typename T>
struct Triangle {
  const T* a;
  int64_t n;
  bool transposed;     // op transposes A.
  bool conjugated;     // op conjugates A.
  bool unit_diagonal;  // All diagonal elements are 1; they are not read.
  bool lower;          // A (before op) is lower triangular.

  T At(int64_t i, int64_t j) const {
    if (i == j && unit_diagonal) return T(1);
    const T value = transposed ? a[j * n + i] : a[i * n + j];
    return conjugated ? Conjugate(value) : value;
  }
  bool IsLower() const { return lower != transposed; }
};

// Solves op(A) x = b in place by substitution. x has n elements at distance `stride`.
template <typename T>
void SolveLine(const Triangle<T>& t, T* x, int64_t stride) {
  const int64_t n = t.n;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = t.IsLower() ? step : n - 1 - step;
    T sum = x[i * stride];
    const int64_t begin = t.IsLower() ? 0 : i + 1, end = t.IsLower() ? i : n;
    for (int64_t k = begin; k < end; ++k) sum -= t.At(i, k) * x[k * stride];
    x[i * stride] = t.unit_diagonal ? sum : sum / t.At(i, i);
  }
}

// Solves op(A) X = B (`left`) or X op(A) = B, which is op(A)^T X^T = B^T, in place for a row-major B.
template <typename T>
void SolveTriangular(Triangle<T> t, bool left, T* b, int64_t rows, int64_t columns) {
  if (left) {
    for (int64_t c = 0; c < columns; ++c) SolveLine(t, b + c, columns);
    return;
  }
  t.transposed = !t.transposed;
  for (int64_t r = 0; r < rows; ++r) SolveLine<T>(t, b + r * columns, 1);
}

}  // namespace xlad::hlo::eval
