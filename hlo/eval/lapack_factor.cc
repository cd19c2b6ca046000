// Factorizations and solves: potrf, getrf, geqrf, geqp3, orgqr, trsm, gtsv. Results are those that LAPACK documents;
// the algorithms are in Golub and Van Loan, "Matrix computations".
#include <algorithm>
#include <numeric>

#include "hlo/eval/lapack.h"
#include "hlo/eval/triangular.h"

namespace xlad::hlo::eval {
namespace {

template <typename T>
MatrixRef<T> CopyToResult(const LapackProblem& p, int64_t in, int64_t out) {
  const MatrixRef<T> a = p.matrix<T>(out);
  std::copy_n(p.operand<T>(in), a.rows * a.columns, a.data);
  return a;
}

// Computes A = L L^H (uplo 'L') or A = U^H U in place. The other triangle is unchanged. The factorization stops at the
// first column whose diagonal element is not positive. info is this column's number, counted from 1, or 0 if all are
// positive.
template <typename T>
absl::Status Potrf(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  const bool lower = p.Flag("uplo", 'L') == 'L';
  int32_t& info = *p.result<int32_t>(1);
  info = 0;
  for (int64_t j = 0; j < a.rows; ++j) {
    const auto l = [&](int64_t i, int64_t k) -> T { return lower ? a(i, k) : Conjugate(a(k, i)); };
    double diagonal = std::real(a(j, j));
    for (int64_t k = 0; k < j; ++k) diagonal -= std::norm(l(j, k));
    if (!(diagonal > 0)) {
      a(j, j) = diagonal;
      info = j + 1;
      return absl::OkStatus();
    }
    const double root = std::sqrt(diagonal);
    a(j, j) = root;
    for (int64_t i = j + 1; i < a.rows; ++i) {
      T sum = l(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l(i, k) * Conjugate(l(j, k));
      (lower ? a(i, j) : a(j, i)) = lower ? sum / root : Conjugate(sum / root);
    }
  }
  return absl::OkStatus();
}

// Computes P A = L U in place. Step k exchanges row k with row pivots[k] (both counted from 1). info is the number of
// the first zero pivot, from 1, or 0 if no pivot is zero.
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
    pivots[k] = best + 1;
    if (a(best, k) == T(0)) {
      if (info == 0) info = k + 1;
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

// Reverses ScaleToUnit, which returned `exponent`, for the elements on and above the diagonal.
template <typename T>
void UnscaleUpper(const MatrixRef<T>& a, int exponent) {
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = i; j < a.columns; ++j) a(i, j) = ScaleByPowerOfTwo(a(i, j), exponent);
  }
}

// Makes the reflector H = I - tau v v^H with H^H x = (beta, 0, ...), where beta is real and x consists of the
// elements of column `k` from row `k` on. Returns tau, and writes beta to the diagonal and v without its leading 1
// below beta.
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

// Applies I - tau v v^H to the columns of `a` from column `first` on. The vector v is column `k` of `vectors` with a
// leading 1.
template <typename T>
void ApplyReflector(const MatrixRef<T>& vectors, int64_t k, T tau, const MatrixRef<T>& a, int64_t first) {
  for (int64_t j = first; j < a.columns; ++j) {
    T sum = a(k, j);
    for (int64_t i = k + 1; i < a.rows; ++i) sum += Conjugate(vectors(i, k)) * a(i, j);
    a(k, j) -= tau * sum;
    for (int64_t i = k + 1; i < a.rows; ++i) a(i, j) -= tau * vectors(i, k) * sum;
  }
}

// Computes A = Q R in place: R is on and above the diagonal, and the vectors of the reflectors are below it.
template <typename T>
absl::Status Geqrf(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  const int exponent = ScaleToUnit(a);
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    const T tau = p.result<T>(1)[k] = MakeReflector(a, k);
    ApplyReflector(a, k, Conjugate(tau), a, k + 1);
  }
  UnscaleUpper(a, exponent);
  return absl::OkStatus();
}

// QR factorization with column pivoting: step k uses the longest remaining column. The operand `order` is ignored: all
// columns may move.
template <typename T>
absl::Status Geqp3(const LapackProblem& p) {
  const MatrixRef<T> a = CopyToResult<T>(p, 0, 0);
  int32_t* order = p.result<int32_t>(1);
  std::iota(order, order + a.columns, 1);
  const int exponent = ScaleToUnit(a);
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
    ApplyReflector(a, k, Conjugate(tau), a, k + 1);
  }
  UnscaleUpper(a, exponent);
  return absl::OkStatus();
}

// The first columns of Q = H_1 H_2 ... from the reflectors that geqrf returns.
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

// Solves op(A) X = B (side 'L') or X op(A) = B for a triangular A.
template <typename T>
absl::Status Trsm(const LapackProblem& p) {
  const MatrixRef<T> b = p.matrix<T>(0);
  std::copy_n(p.operand<T>(1), b.rows * b.columns, b.data);
  const bool left = p.Flag("side", 'L') == 'L', unit = p.Flag("diag", 'N') == 'U';
  const char transpose = p.Flag("trans_x", 'N');
  const int64_t n = p.in_dims[0][1];
  if (p.in_dims[0][0] != n || n != (left ? b.rows : b.columns)) {
    return absl::InvalidArgumentError(absl::StrCat("found a matrix of ", p.in_dims[0][0], " x ", n,
                                                   ", expected one of ", left ? b.rows : b.columns,
                                                   " rows and columns"));
  }
  const Triangle<T> triangle{p.operand<T>(0), n, transpose != 'N', transpose == 'C', unit, p.Flag("uplo", 'L') == 'L'};
  SolveTriangular(triangle, left, b.data, b.rows, b.columns);
  return absl::OkStatus();
}

// Solves a tridiagonal system by elimination with partial pivoting. As in LAPACK, the returned diagonals are those of
// U, and the second superdiagonal of U replaces the lower diagonal.
template <typename T>
absl::Status Gtsv(const LapackProblem& p) {
  const int64_t n = p.in_dims[1][0];
  const MatrixRef<T> b = CopyToResult<T>(p, 3, 3);
  int32_t& info = *p.result<int32_t>(4);
  info = 0;
  for (int64_t i = 0; i < 3; ++i) std::copy_n(p.operand<T>(i), n, p.result<T>(i));
  if (n == 0) return absl::OkStatus();
  // Each diagonal has n elements; the first one of the lower and the last one of the upper diagonal are unused.
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
    if (diagonal[k] == T(0)) info = k + 1;
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

constexpr LapackFunction kFactorFunctions[] = {
    {"potrf", Potrf<double>, Potrf<Complex128>}, {"getrf", Getrf<double>, Getrf<Complex128>},
    {"geqrf", Geqrf<double>, Geqrf<Complex128>}, {"geqp3", Geqp3<double>, Geqp3<Complex128>},
    {"orgqr", Orgqr<double>, Orgqr<Complex128>}, {"ungqr", Orgqr<double>, Orgqr<Complex128>},
    {"trsm", Trsm<double>, Trsm<Complex128>},    {"gtsv", Gtsv<double>, Gtsv<Complex128>},
};

}  // namespace

absl::Span<const LapackFunction> LapackFactorFunctions() { return kFactorFunctions; }

}  // namespace xlad::hlo::eval
