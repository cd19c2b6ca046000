// Jacobi's method for eigenvalues of Hermitian matrices and for singular values (Golub and Van Loan, "Matrix
// computations", sections 8.5 and 8.6): rotations of two rows or columns, in sweeps over all pairs, until none is
// needed. A few sweeps are enough, because convergence is quadratic.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "hlo/eval/lapack.h"

namespace xlad::hlo::eval {

constexpr int kMaxJacobiSweeps = 60;
// A coupling of a smaller relative size counts as zero, because rounding leaves a few units in the last place.
constexpr double kNegligibleCoupling = 4 * std::numeric_limits<double>::epsilon();

// The rotation of two vectors x and y that makes their inner product `coupling` zero; a and b are their squared
// lengths: x' = c x - s f y, y' = s x + c f y, where the phase f makes the coupling real.
template <typename T>
struct Rotation {
  double c = 1, s = 0;
  T phase = T(1);

  Rotation(double a, double b, T coupling) {
    const double size = std::abs(coupling);
    phase = Conjugate(coupling) / size;
    const double zeta = (b - a) / (2 * size);
    const double t = std::copysign(1.0, zeta) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
    c = 1 / std::sqrt(1 + t * t);
    s = c * t;
  }

  // Rotates the columns p and q of `m`.
  void Columns(const MatrixRef<T>& m, int64_t p, int64_t q) const {
    for (int64_t i = 0; i < m.rows; ++i) {
      const T x = m(i, p), y = m(i, q) * phase;
      m(i, p) = c * x - s * y;
      m(i, q) = s * x + c * y;
    }
  }
  // Rotates the rows p and q of `m`, as the conjugate transpose of Columns does.
  void Rows(const MatrixRef<T>& m, int64_t p, int64_t q) const {
    for (int64_t j = 0; j < m.columns; ++j) {
      const T x = m(p, j), y = m(q, j) * Conjugate(phase);
      m(p, j) = c * x - s * y;
      m(q, j) = s * x + c * y;
    }
  }
};

// Replaces the Hermitian matrix `a`, whose elements are about 1 or less, by a diagonal one V^H A V, and `v` by v V.
// Returns whether the off-diagonal elements became negligible in `max_sweeps` sweeps.
template <typename T>
bool Diagonalize(const MatrixRef<T>& a, const MatrixRef<T>& v, int max_sweeps = kMaxJacobiSweeps) {
  double size = 0;
  for (int64_t i = 0; i < a.rows * a.columns; ++i) size += std::norm(a.data[i]);
  const double negligible = kNegligibleCoupling * std::sqrt(size);
  for (int sweep = 0; sweep < max_sweeps; ++sweep) {
    bool converged = true;
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = i + 1; j < a.rows; ++j) {
        if (!(std::abs(a(i, j)) > negligible)) continue;
        converged = false;
        const Rotation<T> rotation(std::real(a(i, i)), std::real(a(j, j)), a(i, j));
        rotation.Columns(a, i, j);
        rotation.Rows(a, i, j);
        rotation.Columns(v, i, j);
      }
    }
    if (converged) return true;
  }
  return false;
}

// Makes the columns of `a` orthogonal, as A V, and replaces `v` by v V. `a` has at least as many rows as columns, and
// its elements are about 1 or less. Returns whether the columns became orthogonal in `max_sweeps` sweeps.
template <typename T>
bool OrthogonalizeColumns(const MatrixRef<T>& a, const MatrixRef<T>& v, int max_sweeps = kMaxJacobiSweeps) {
  constexpr double kTiny = 1e-150;  // Squares of smaller numbers underflow, and rotations then change nothing.
  const double negligible = kNegligibleCoupling * std::sqrt(static_cast<double>(a.rows));
  for (int sweep = 0; sweep < max_sweeps; ++sweep) {
    bool converged = true;
    for (int64_t i = 0; i < a.columns; ++i) {
      for (int64_t j = i + 1; j < a.columns; ++j) {
        double x = 0, y = 0;
        T inner = T(0);
        for (int64_t k = 0; k < a.rows; ++k) {
          x += std::norm(a(k, i));
          y += std::norm(a(k, j));
          inner += Conjugate(a(k, i)) * a(k, j);
        }
        if (!(std::abs(inner) > std::max(negligible * std::sqrt(x * y), kTiny))) continue;
        converged = false;
        const Rotation<T> rotation(x, y, inner);
        rotation.Columns(a, i, j);
        rotation.Columns(v, i, j);
      }
    }
    if (converged) return true;
  }
  return false;
}

}  // namespace xlad::hlo::eval
