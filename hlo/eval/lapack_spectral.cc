// Eigenvalues of Hermitian matrices and singular values, by Jacobi's rotations (Golub and Van Loan, "Matrix
// computations", sections 8.5 and 8.6). Vectors are unique up to their phase (and, where values coincide, up to a
// rotation): LAPACK may rightly give others.
#include <algorithm>
#include <numeric>

#include "hlo/eval/lapack.h"

namespace xlad::hlo::eval {
namespace {

constexpr int kMaxSweeps = 60;

// The rotation that makes the inner product `coupling` of two vectors with "sizes" a and b zero:
// x' = c x - s f y, y' = s x + c f y, where f is the phase that makes the coupling real.
template <typename T>
struct Rotation {
  double c = 1, s = 0;
  T phase = T(1);

  Rotation(double a, double b, T coupling) {
    const double size = std::abs(coupling);
    phase = Conj(coupling) / size;
    const double zeta = (b - a) / (2 * size);
    const double t = std::copysign(1.0, zeta) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
    c = 1 / std::sqrt(1 + t * t);
    s = c * t;
  }

  void Columns(const MatrixRef<T>& m, int64_t p, int64_t q) const {
    for (int64_t i = 0; i < m.rows; ++i) {
      const T x = m(i, p), y = m(i, q) * phase;
      m(i, p) = c * x - s * y;
      m(i, q) = s * x + c * y;
    }
  }
  void Rows(const MatrixRef<T>& m, int64_t p, int64_t q) const {
    for (int64_t j = 0; j < m.columns; ++j) {
      const T x = m(p, j), y = m(q, j) * Conj(phase);
      m(p, j) = c * x - s * y;
      m(q, j) = s * x + c * y;
    }
  }
};

template <typename T>
struct OwnedMatrix {
  std::vector<T> values;
  MatrixRef<T> ref;
  OwnedMatrix(int64_t rows, int64_t columns)
      : values(static_cast<size_t>(rows * columns), T(0)), ref{values.data(), rows, columns} {}
  static OwnedMatrix Identity(int64_t n) {
    OwnedMatrix result(n, n);
    for (int64_t i = 0; i < n; ++i) result.ref(i, i) = T(1);
    return result;
  }
};

// Indices by value.
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

// Eigenvalues in ascending order, and as columns the vectors (mode 'V').
template <typename T>
absl::Status Syevd(const LapackProblem& p) {
  const int64_t n = p.in_dims[0][0];
  const T* given = p.operand<T>(0);
  const bool lower = p.Flag("uplo", 'L') == 'L';
  OwnedMatrix<T> a(n, n), v = OwnedMatrix<T>::Identity(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const bool own = lower ? i >= j : i <= j;
      a.ref(i, j) = own ? given[i * n + j] : Conj(given[j * n + i]);
    }
    a.ref(i, i) = std::real(a.ref(i, i));
  }
  double size = 0;
  for (const T& x : a.values) size += std::norm(x);
  const double negligible = 1e-17 * std::sqrt(size);
  bool settled = false;
  for (int sweep = 0; sweep < kMaxSweeps && !settled; ++sweep) {
    settled = true;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        if (!(std::abs(a.ref(i, j)) > negligible)) continue;
        settled = false;
        const Rotation<T> rotation(std::real(a.ref(i, i)), std::real(a.ref(j, j)), a.ref(i, j));
        rotation.Columns(a.ref, i, j);
        rotation.Rows(a.ref, i, j);
        rotation.Columns(v.ref, i, j);
      }
    }
  }
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(std::real(a.ref(i, i)));
  const std::vector<int64_t> order = Sorted(values, /*ascending=*/true);
  const bool finite = AllFinite(a.values.data(), n * n);
  for (int64_t j = 0; j < n; ++j) {
    p.result<double>(1)[j] = finite ? values[order[j]] : NAN;
    for (int64_t i = 0; i < n; ++i) p.matrix<T>(0)(i, j) = finite ? v.ref(i, order[j]) : T(NAN);
  }
  *p.result<int32_t>(2) = finite ? 0 : 1;
  return absl::OkStatus();
}

// Columns of `u` from `known` on become orthonormal to all before them.
template <typename T>
void CompleteBasis(const MatrixRef<T>& u, int64_t known) {
  int64_t axis = 0;
  for (int64_t j = known; j < u.columns;) {
    for (int64_t i = 0; i < u.rows; ++i) u(i, j) = T(i == axis ? 1 : 0);
    for (int pass = 0; pass < 2; ++pass) {  // Twice is enough.
      for (int64_t k = 0; k < j; ++k) {
        T inner = T(0);
        for (int64_t i = 0; i < u.rows; ++i) inner += Conj(u(i, k)) * u(i, j);
        for (int64_t i = 0; i < u.rows; ++i) u(i, j) -= inner * u(i, k);
      }
    }
    double size = 0;
    for (int64_t i = 0; i < u.rows; ++i) size += std::norm(u(i, j));
    ++axis;
    // Among the axes at least one is this far from every smaller space.
    if (size * static_cast<double>(2 * u.rows) < 1 && axis < u.rows) continue;
    for (int64_t i = 0; i < u.rows; ++i) u(i, j) /= std::sqrt(size);
    ++j;
  }
}

// A = U S V^H of a matrix with at least as many rows as columns: `a` becomes U S, `v` becomes V.
template <typename T>
void OneSidedJacobi(const MatrixRef<T>& a, const MatrixRef<T>& v) {
  bool settled = false;
  for (int sweep = 0; sweep < kMaxSweeps && !settled; ++sweep) {
    settled = true;
    for (int64_t i = 0; i < a.columns; ++i) {
      for (int64_t j = i + 1; j < a.columns; ++j) {
        double x = 0, y = 0;
        T inner = T(0);
        for (int64_t k = 0; k < a.rows; ++k) {
          x += std::norm(a(k, i));
          y += std::norm(a(k, j));
          inner += Conj(a(k, i)) * a(k, j);
        }
        if (!(std::abs(inner) > 1e-16 * std::sqrt(x * y))) continue;
        settled = false;
        const Rotation<T> rotation(x, y, inner);
        rotation.Columns(a, i, j);
        rotation.Columns(v, i, j);
      }
    }
  }
}

// Singular values in descending order; U and V^H, whole or as many as there are values (mode 'A', 'S').
template <typename T>
absl::Status Gesdd(const LapackProblem& p) {
  const int64_t m = p.in_dims[0][0], n = p.in_dims[0][1], k = std::min(m, n);
  const T* given = p.operand<T>(0);
  const bool tall = m >= n;
  OwnedMatrix<T> a(std::max(m, n), k), v = OwnedMatrix<T>::Identity(k);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j)
      (tall ? a.ref(i, j) : a.ref(j, i)) = tall ? given[i * n + j] : Conj(given[i * n + j]);
  }
  const bool finite = AllFinite(given, m * n);
  if (finite) OneSidedJacobi(a.ref, v.ref);
  std::vector<double> sizes;
  for (int64_t j = 0; j < k; ++j) {
    double size = 0;
    for (int64_t i = 0; i < a.ref.rows; ++i) size += std::norm(a.ref(i, j));
    sizes.push_back(std::sqrt(size));
  }
  const std::vector<int64_t> order = Sorted(sizes, /*ascending=*/false);
  for (int64_t j = 0; j < k; ++j) p.result<double>(1)[j] = finite ? sizes[order[j]] : NAN;
  *p.result<int32_t>(4) = finite ? 0 : 1;
  if (p.Flag("mode", 'A') == 'N') return absl::OkStatus();
  const MatrixRef<T> u = p.matrix<T>(2), vt = p.matrix<T>(3);
  // The long vectors are the scaled columns, the short ones V's.
  OwnedMatrix<T> scaled(a.ref.rows, tall ? u.columns : vt.rows), shorter(k, tall ? vt.rows : u.columns);
  // Below this, a column's direction is made of rounding errors.
  const double negligible = k == 0 ? 0 : 1e-15 * static_cast<double>(m + n) * sizes[order[0]];
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
    for (int64_t j = 0; j < vt.columns; ++j) vt(i, j) = finite ? Conj(right(j, i)) : T(NAN);
  }
  return absl::OkStatus();
}

constexpr LapackRoutine kRoutines[] = {
    {"syevd", "nn > nn n:r -:i", Syevd<double>, Syevd<Complex128>},
    {"heevd", "nn > nn n:r -:i", Syevd<double>, Syevd<Complex128>},
    {"gesdd", "mn > mn k:r mu vn -:i", Gesdd<double>, Gesdd<Complex128>},
    {"gesvd", "mn > mn k:r mu vn -:i", Gesdd<double>, Gesdd<Complex128>},
};

}  // namespace

absl::Span<const LapackRoutine> LapackSpectralRoutines() { return kRoutines; }

}  // namespace xlad::hlo::eval
