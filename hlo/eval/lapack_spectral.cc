// Eigenvalues of Hermitian matrices and singular values by Jacobi's method (Golub and Van Loan, "Matrix computations",
// sections 8.5 and 8.6). Eigenvectors and singular vectors are unique only up to their phase, and up to a rotation if
// values are equal. They may therefore differ from LAPACK's vectors. As with LAPACK, info is positive if the method
// does not converge.
#include <algorithm>
#include <numeric>

#include "hlo/eval/jacobi.h"
#include "hlo/eval/lapack.h"

namespace xlad::hlo::eval {
namespace {

template <typename T>
struct OwnedMatrix {
  std::vector<T> values;
  MatrixRef<T> ref;
  OwnedMatrix(int64_t rows, int64_t columns) : values(rows * columns, T(0)), ref{values.data(), rows, columns} {}
  static OwnedMatrix Identity(int64_t n) {
    OwnedMatrix result(n, n);
    for (int64_t i = 0; i < n; ++i) result.ref(i, i) = T(1);
    return result;
  }
};

// The indices of the values in ascending or descending order of value.
std::vector<int64_t> Sorted(const std::vector<double>& values, bool ascending) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t x, int64_t y) { return ascending ? values[x] < values[y] : values[x] > values[y]; });
  return order;
}

template <typename T>
bool AllFinite(const T* values, int64_t count) {
  return std::all_of(values, values + count,
                     [](T x) { return std::isfinite(std::real(x)) && std::isfinite(std::imag(x)); });
}

// Eigenvalues in ascending order and, whatever the mode, the eigenvectors as columns. If an element is not finite, the
// results are NaN and info is 1.
template <typename T>
absl::Status Syevd(const LapackProblem& p) {
  const int64_t n = p.in_dims[0][0];
  const T* given = p.operand<T>(0);
  const bool lower = p.Flag("uplo", 'L') == 'L';
  OwnedMatrix<T> a(n, n), v = OwnedMatrix<T>::Identity(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const bool is_stored = lower ? i >= j : i <= j;
      a.ref(i, j) = is_stored ? given[i * n + j] : Conjugate(given[j * n + i]);
    }
    a.ref(i, i) = std::real(a.ref(i, i));
  }
  const int exponent = ScaleToUnit(a.ref);
  const bool converged = Diagonalize(a.ref, v.ref);
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(ScaleByPowerOfTwo(std::real(a.ref(i, i)), exponent));
  const std::vector<int64_t> order = Sorted(values, /*ascending=*/true);
  const bool finite = AllFinite(a.values.data(), n * n);
  for (int64_t j = 0; j < n; ++j) {
    p.result<double>(1)[j] = finite ? values[order[j]] : NAN;
    for (int64_t i = 0; i < n; ++i) p.matrix<T>(0)(i, j) = finite ? v.ref(i, order[j]) : T(NAN);
  }
  *p.result<int32_t>(2) = finite && converged ? 0 : 1;
  return absl::OkStatus();
}

// Sets the columns of `u` from column `known` on to unit vectors that are orthogonal to all columns before them, by
// Gram-Schmidt orthogonalization of unit vectors of the axes.
template <typename T>
void CompleteBasis(const MatrixRef<T>& u, int64_t known) {
  int64_t axis = 0;
  for (int64_t j = known; j < u.columns;) {
    for (int64_t i = 0; i < u.rows; ++i) u(i, j) = T(i == axis ? 1 : 0);
    for (int pass = 0; pass < 2; ++pass) {  // A second pass removes the rounding errors of the first.
      for (int64_t k = 0; k < j; ++k) {
        T inner = T(0);
        for (int64_t i = 0; i < u.rows; ++i) inner += Conjugate(u(i, k)) * u(i, j);
        for (int64_t i = 0; i < u.rows; ++i) u(i, j) -= inner * u(i, k);
      }
    }
    double size = 0;
    for (int64_t i = 0; i < u.rows; ++i) size += std::norm(u(i, j));
    ++axis;
    // At least one axis has a squared distance of 1 / rows or more from any subspace of smaller dimension.
    if (size * 2 * u.rows < 1 && axis < u.rows) continue;
    for (int64_t i = 0; i < u.rows; ++i) u(i, j) /= std::sqrt(size);
    ++j;
  }
}

// Singular values in descending order; U and V^H, with all columns (mode 'A') or one per singular value (mode 'S'), or
// neither (mode 'N'). If an element is not finite, the results are NaN and info is 1.
template <typename T>
absl::Status Gesdd(const LapackProblem& p) {
  const int64_t m = p.in_dims[0][0], n = p.in_dims[0][1], k = std::min(m, n);
  const T* given = p.operand<T>(0);
  const bool tall = m >= n;
  OwnedMatrix<T> a(std::max(m, n), k), v = OwnedMatrix<T>::Identity(k);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j)
      (tall ? a.ref(i, j) : a.ref(j, i)) = tall ? given[i * n + j] : Conjugate(given[i * n + j]);
  }
  const bool finite = AllFinite(given, m * n);
  const int exponent = ScaleToUnit(a.ref);
  // A = U S V^H: `a` becomes U S, and `v` becomes V.
  const bool converged = finite && OrthogonalizeColumns(a.ref, v.ref);
  std::vector<double> sizes;
  for (int64_t j = 0; j < k; ++j) {
    double size = 0;
    for (int64_t i = 0; i < a.ref.rows; ++i) size += std::norm(a.ref(i, j));
    sizes.push_back(std::sqrt(size));
  }
  const std::vector<int64_t> order = Sorted(sizes, /*ascending=*/false);
  for (int64_t j = 0; j < k; ++j) p.result<double>(1)[j] = finite ? ScaleByPowerOfTwo(sizes[order[j]], exponent) : NAN;
  *p.result<int32_t>(4) = converged ? 0 : 1;
  if (p.Flag("mode", 'A') == 'N') return absl::OkStatus();
  const MatrixRef<T> u = p.matrix<T>(2), vt = p.matrix<T>(3);
  // The singular vectors of length max(m, n) are the normalized columns of U S. Those of length k are the columns of V.
  OwnedMatrix<T> scaled(a.ref.rows, tall ? u.columns : vt.rows), shorter(k, tall ? vt.rows : u.columns);
  // The direction of a column that is shorter than this is determined by rounding errors.
  const double negligible = k == 0 ? 0 : 1e-15 * (m + n) * sizes[order[0]];
  int64_t known = 0;
  for (int64_t j = 0; j < k && j < scaled.ref.columns && j < shorter.ref.columns; ++j) {
    const int64_t from = order[j];
    const double size = sizes[from];
    for (int64_t i = 0; i < k; ++i) shorter.ref(i, j) = v.ref(i, from);
    if (!(size > negligible)) continue;
    for (int64_t i = 0; i < a.ref.rows; ++i) scaled.ref(i, j) = a.ref(i, from) / size;
    known = j + 1;
  }
  CompleteBasis(scaled.ref, known);
  const MatrixRef<T>&left = tall ? scaled.ref : shorter.ref, &right = tall ? shorter.ref : scaled.ref;
  for (int64_t i = 0; i < u.rows; ++i) {
    for (int64_t j = 0; j < u.columns; ++j) u(i, j) = finite ? left(i, j) : T(NAN);
  }
  for (int64_t i = 0; i < vt.rows; ++i) {
    for (int64_t j = 0; j < vt.columns; ++j) vt(i, j) = finite ? Conjugate(right(j, i)) : T(NAN);
  }
  return absl::OkStatus();
}

constexpr LapackFunction kSpectralFunctions[] = {
    {"syevd", Syevd<double>, Syevd<Complex128>},
    {"heevd", Syevd<double>, Syevd<Complex128>},
    {"gesdd", Gesdd<double>, Gesdd<Complex128>},
    {"gesvd", Gesdd<double>, Gesdd<Complex128>},
};

}  // namespace

absl::Span<const LapackFunction> LapackSpectralFunctions() { return kSpectralFunctions; }

}  // namespace xlad::hlo::eval
