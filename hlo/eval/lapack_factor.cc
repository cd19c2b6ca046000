// Factorisations and solves: potrf, getrf, geqrf, geqp3, orgqr, trsm, gtsv. What each gives is LAPACK's documented
// result; the algorithms are the textbook ones (Golub and Van Loan, "Matrix computations").
#include <algorithm>
#include <numeric>

#include "hlo/eval/lapack.h"

namespace xlad::hlo::eval {
namespace {

template <typename T>
MatrixRef<T> CopyToResult(const LapackProblem& p, size_t in, size_t out) {
  const MatrixRef<T> a = p.matrix<T>(out);
  std::copy_n(p.operand<T>(in), a.rows * a.columns, a.data);
  return a;
}

// A = L L^H (uplo 'L') or U^H U in place, the other triangle left as it is. info: the first column whose diagonal is
// not positive, from 1; the factorisation stops there.
template <typename T>
absl::Status Potrf(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  const bool lower = p.Flag("uplo", 'L') == 'L';
  int32_t& info = *p.result<int32_t>(1);
  info = 0;
  for (int64_t j = 0; j < a.rows; ++j) {
    const auto l = [&](int64_t i, int64_t k) -> T { return lower ? a(i, k) : Conj(a(k, i)); };
    double diagonal = std::real(a(j, j));
    for (int64_t k = 0; k < j; ++k) diagonal -= std::norm(l(j, k));
    if (!(diagonal > 0)) {
      a(j, j) = diagonal;
      info = static_cast<int32_t>(j + 1);
      return absl::OkStatus();
    }
    const double root = std::sqrt(diagonal);
    a(j, j) = root;
    for (int64_t i = j + 1; i < a.rows; ++i) {
      T sum = l(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l(i, k) * Conj(l(j, k));
      (lower ? a(i, j) : a(j, i)) = lower ? sum / root : Conj(sum / root);
    }
  }
  return absl::OkStatus();
}

// What LAPACK takes as a complex number's size when it looks for a pivot.
double PivotSize(double x) { return std::fabs(x); }
double PivotSize(Complex128 x) { return std::fabs(x.real()) + std::fabs(x.imag()); }

// P A = L U in place, rows exchanged as in `pivots` (from 1). info: the first zero pivot, from 1.
template <typename T>
absl::Status Getrf(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  int32_t* pivots = p.result<int32_t>(1);
  int32_t& info = *p.result<int32_t>(2);
  info = 0;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < a.rows; ++i) {
      if (PivotSize(a(i, k)) > PivotSize(a(best, k))) best = i;
    }
    pivots[k] = static_cast<int32_t>(best + 1);
    if (a(best, k) == T(0)) {
      if (info == 0) info = static_cast<int32_t>(k + 1);
      continue;
    }
    for (int64_t j = 0; best != k && j < a.columns; ++j) std::swap(a(k, j), a(best, j));
    for (int64_t i = k + 1; i < a.rows; ++i) {
      const T factor = a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < a.columns; ++j) a(i, j) -= factor * a(k, j);
    }
  }
  return absl::OkStatus();
}

// The reflector H = I - tau v v^H with H^H x = (beta, 0, ...), beta real, for column `k` from row `k` on; v without
// its leading 1 replaces the column below beta.
template <typename T>
T MakeReflector(const MatrixRef<T>& a, int64_t k) {
  double below = 0;
  for (int64_t i = k + 1; i < a.rows; ++i) below += std::norm(a(i, k));
  const T alpha = a(k, k);
  if (below == 0 && std::imag(alpha) == 0) return T(0);
  const double beta = -std::copysign(std::sqrt(std::norm(alpha) + below), std::real(alpha));
  for (int64_t i = k + 1; i < a.rows; ++i) a(i, k) /= alpha - beta;
  a(k, k) = beta;
  return (beta - alpha) / beta;
}

// Applies I - tau v v^H, v being column `k` of `vectors` with a leading 1, to the columns of `a` from `first`.
template <typename T>
void ApplyReflector(const MatrixRef<T>& vectors, int64_t k, T tau, const MatrixRef<T>& a, int64_t first) {
  for (int64_t j = first; j < a.columns; ++j) {
    T sum = a(k, j);
    for (int64_t i = k + 1; i < a.rows; ++i) sum += Conj(vectors(i, k)) * a(i, j);
    a(k, j) -= tau * sum;
    for (int64_t i = k + 1; i < a.rows; ++i) a(i, j) -= tau * vectors(i, k) * sum;
  }
}

// A = Q R: R above, the reflectors' vectors below the diagonal.
template <typename T>
absl::Status Geqrf(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    const T tau = p.result<T>(1)[k] = MakeReflector(a, k);
    ApplyReflector(a, k, Conj(tau), a, k + 1);
  }
  return absl::OkStatus();
}

// The same with columns exchanged, the longest remaining one first; all columns are free at the start.
template <typename T>
absl::Status Geqp3(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  int32_t* order = p.result<int32_t>(1);
  std::iota(order, order + a.columns, 1);
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t best = k;
    double longest = -1;
    for (int64_t j = k; j < a.columns; ++j) {
      double length = 0;
      for (int64_t i = k; i < a.rows; ++i) length += std::norm(a(i, j));
      if (length > longest) {
        longest = length;
        best = j;
      }
    }
    for (int64_t i = 0; best != k && i < a.rows; ++i) std::swap(a(i, k), a(i, best));
    std::swap(order[k], order[best]);
    const T tau = p.result<T>(2)[k] = MakeReflector(a, k);
    ApplyReflector(a, k, Conj(tau), a, k + 1);
  }
  return absl::OkStatus();
}

// The first columns of Q = H_1 H_2 ... from reflectors as geqrf leaves them.
template <typename T>
absl::Status Orgqr(const LapackProblem& p) {
  const MatrixRef<T> q = p.matrix<T>(0);
  std::vector<T> copy(p.operand<T>(0), p.operand<T>(0) + q.rows * q.columns);
  const MatrixRef<T> vectors{copy.data(), q.rows, q.columns};
  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t j = 0; j < q.columns; ++j) q(i, j) = T(i == j ? 1 : 0);
  }
  const int64_t reflectors = std::min({p.in_dims[1][0], q.rows, q.columns});
  for (int64_t k = reflectors; k-- > 0;) ApplyReflector(vectors, k, p.operand<T>(1)[k], q, 0);
  return absl::OkStatus();
}

// op(A) X = B (side 'L') or X op(A) = B, A triangular; X takes B's place.
template <typename T>
absl::Status Trsm(const LapackProblem& p) {
  const MatrixRef<T> b = p.matrix<T>(0);
  std::copy_n(p.operand<T>(1), b.rows * b.columns, b.data);
  const bool left = p.Flag("side", 'L') == 'L', unit = p.Flag("diag", 'N') == 'U';
  const char transpose = p.Flag("trans_x", 'N');
  const int64_t n = p.in_dims[0][1], lines = left ? b.columns : b.rows;
  const T* a = p.operand<T>(0);
  if (p.in_dims[0][0] != n || n != (left ? b.rows : b.columns)) {
    return absl::InvalidArgumentError(absl::StrCat("found a matrix of ", p.in_dims[0][0], " x ", n,
                                                   ", expected one of ", left ? b.rows : b.columns,
                                                   " rows and columns"));
  }
  // X op(A) = B is op(A)^T X^T = B^T.
  const bool swapped = (transpose != 'N') == left;
  const bool lower = (p.Flag("uplo", 'L') == 'L') != swapped;
  const auto at = [&](int64_t i, int64_t j) {
    const T value = swapped ? a[j * n + i] : a[i * n + j];
    return transpose == 'C' ? Conj(value) : value;
  };
  for (int64_t line = 0; line < lines; ++line) {
    const auto x = [&](int64_t i) -> T& { return left ? b(i, line) : b(line, i); };
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = lower ? step : n - 1 - step;
      for (int64_t k = lower ? 0 : i + 1; k < (lower ? i : n); ++k) x(i) -= at(i, k) * x(k);
      if (!unit) x(i) /= at(i, i);
    }
  }
  return absl::OkStatus();
}

// A tridiagonal system by elimination with partial pivoting. The diagonals that come back are LAPACK's: those of U
// (the second one above overwrites the lower diagonal).
template <typename T>
absl::Status Gtsv(const LapackProblem& p) {
  const int64_t n = p.in_dims[1][0];
  const MatrixRef<T> b = CopyToResult<T>(p, 3, 3);
  int32_t& info = *p.result<int32_t>(4);
  info = 0;
  for (size_t i = 0; i < 3; ++i) std::copy_n(p.operand<T>(i), n, p.result<T>(i));
  if (n == 0) return absl::OkStatus();
  // All three have n numbers; the lower diagonal begins with, the upper one ends with an unused one.
  T *lower = p.result<T>(0) + 1, *diagonal = p.result<T>(1), *upper = p.result<T>(2);
  for (int64_t k = 0; k + 1 < n; ++k) {
    const T below = lower[k];
    lower[k] = T(0);
    if (PivotSize(below) > PivotSize(diagonal[k])) {
      std::swap_ranges(&b(k, 0), &b(k, 0) + b.columns, &b(k + 1, 0));
      const T factor = diagonal[k] / below, old_upper = upper[k];
      diagonal[k] = below;
      upper[k] = diagonal[k + 1];
      diagonal[k + 1] = old_upper - factor * upper[k];
      if (k + 2 < n) {
        lower[k] = upper[k + 1];
        upper[k + 1] = -factor * lower[k];
      }
      for (int64_t j = 0; j < b.columns; ++j) b(k + 1, j) -= factor * b(k, j);
    } else if (diagonal[k] != T(0)) {
      const T factor = below / diagonal[k];
      diagonal[k + 1] -= factor * upper[k];
      for (int64_t j = 0; j < b.columns; ++j) b(k + 1, j) -= factor * b(k, j);
    }
  }
  for (int64_t k = 0; k < n && info == 0; ++k) {
    if (diagonal[k] == T(0)) info = static_cast<int32_t>(k + 1);
  }
  for (int64_t k = n; info == 0 && k-- > 0;) {
    for (int64_t j = 0; j < b.columns; ++j) {
      if (k + 1 < n) b(k, j) -= upper[k] * b(k + 1, j);
      if (k + 2 < n) b(k, j) -= lower[k] * b(k + 2, j);
      b(k, j) /= diagonal[k];
    }
  }
  return absl::OkStatus();
}

constexpr LapackRoutine kRoutines[] = {
    {"potrf", "nn > nn -:i", Potrf<double>, Potrf<Complex128>},
    {"getrf", "mn > mn k:i -:i", Getrf<double>, Getrf<Complex128>},
    {"geqrf", "mn > mn k", Geqrf<double>, Geqrf<Complex128>},
    {"geqp3", "mn n:i > mn n:i k", Geqp3<double>, Geqp3<Complex128>},
    {"orgqr", "mn t > mn", Orgqr<double>, Orgqr<Complex128>},
    {"ungqr", "mn t > mn", Orgqr<double>, Orgqr<Complex128>},
    {"trsm", "aa mn > mn", Trsm<double>, Trsm<Complex128>},
    {"gtsv", "n n n nr > n n n nr -:i", Gtsv<double>, Gtsv<Complex128>},
};

}  // namespace

absl::Span<const LapackRoutine> LapackFactorRoutines() { return kRoutines; }

}  // namespace xlad::hlo::eval
