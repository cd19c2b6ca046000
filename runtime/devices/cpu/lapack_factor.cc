// Factorizations and solves by LAPACK: potrf, getrf, geqrf, geqp3, orgqr, ormqr, trsm, gtsv, gehrd, sytrd.
#include <cmath>
#include <limits>

#include "runtime/devices/cpu/lapack_matrix.h"

namespace xlad::runtime {
namespace {

// The factor L of A = L L^H is stored like the factor L^T of A^T = conj(L) L^T.
template <typename T>
void Potrf(LapackMatrix<T>& a) {
  if (a.measures()) return;
  const int32_t n = a.rows();
  T* const factor = a.template result<T>(0);
  CopyMatrix(a.template operand<T>(0), n, n, factor);
  const char uplo = Opposite(a.Letter("uplo", 'L'));
  const int32_t stride = std::max(1, n);
  a.library().potrf(&uplo, &n, factor, &stride, a.template result<int32_t>(1), 1);
}

// Defined like HLO's cholesky: the other triangle is zero. If the matrix is not positive definite, a lower factor is
// NaN from the first column that cannot be computed, and an upper factor from the first such row.
template <typename T>
void Cholesky(LapackMatrix<T>& a) {
  if (a.measures()) return;
  const int32_t n = a.rows(), stride = std::max(1, n);
  const T* const from = a.template operand<T>(0);
  T* const factor = a.template result<T>(0);
  const bool lower = a.Letter("uplo", 'L') == 'L';
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) factor[i * n + j] = (lower ? j <= i : j >= i) ? from[i * n + j] : T(0);
  }
  const char uplo = lower ? 'U' : 'L';
  int32_t info = 0;
  a.library().potrf(&uplo, &n, factor, &stride, &info, 1);
  if (info == 0) return;
  const T nan = std::numeric_limits<typename LapackMatrix<T>::Real>::quiet_NaN();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      if (lower ? j <= i && j + 1 >= info : j >= i && i + 1 >= info) factor[i * n + j] = nan;
    }
  }
}

template <typename T>
void Trsm(LapackMatrix<T>& a) {
  if (a.measures()) return;
  const int32_t rows = a.result_dim(0, 0), columns = a.result_dim(0, 1), n = std::max(1, a.rows());
  T* const x = a.template result<T>(0);
  CopyMatrix(a.template operand<T>(1), rows, columns, x);
  const char side = a.Letter("side", 'L') == 'L' ? 'R' : 'L', uplo = Opposite(a.Letter("uplo", 'L'));
  const char transpose = a.Letter("trans_x", 'N'), diagonal = a.Letter("diag", 'N');
  const T one = 1;
  const int32_t stride = std::max(1, columns);
  a.library().trsm(&side, &uplo, &transpose, &diagonal, &columns, &rows, &one, a.template operand<T>(0), &n, x,
                   &stride, 1, 1, 1, 1);
}

template <typename T>
void Getrf(LapackMatrix<T>& a) {
  const int32_t m = a.rows(), n = a.columns(), stride = std::max(1, m);
  T* const by_columns = a.TakeMatrix(m, n);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), m, n, by_columns);
  a.library().getrf(&m, &n, by_columns, &stride, a.template result<int32_t>(1), a.template result<int32_t>(2));
  Transpose(by_columns, n, m, a.template result<T>(0));
}

template <typename T>
void Geqrf(LapackMatrix<T>& a) {
  const int32_t m = a.rows(), n = a.columns(), stride = std::max(1, m);
  int32_t info = 0;
  const int32_t size = a.WorkSize([&] {
    T work = 0;
    const int32_t query = -1;
    a.library().geqrf(&m, &n, nullptr, &stride, nullptr, &work, &query, &info);
    return RoundedSize(work);
  });
  T* const by_columns = a.TakeMatrix(m, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), m, n, by_columns);
  a.library().geqrf(&m, &n, by_columns, &stride, a.template result<T>(1), work, &size, &info);
  Transpose(by_columns, n, m, a.template result<T>(0));
}

template <typename T>
void Geqp3(LapackMatrix<T>& a) {
  using Real = typename LapackMatrix<T>::Real;
  const int32_t m = a.rows(), n = a.columns(), stride = std::max(1, m);
  int32_t info = 0;
  Real* const real_work = a.template TakeMatrix<Real>(2, n);
  const auto run = [&](T* by_columns, int32_t* order, T* tau, T* work, int32_t size) {
    if constexpr (kIsComplex<T>) {
      using Function = void (*)(const int32_t*, const int32_t*, T*, const int32_t*, int32_t*, T*, T*, const int32_t*,
                                Real*, int32_t*);
      reinterpret_cast<Function>(a.library().geqp3)(&m, &n, by_columns, &stride, order, tau, work, &size, real_work,
                                                    &info);
    } else {
      using Function =
          void (*)(const int32_t*, const int32_t*, T*, const int32_t*, int32_t*, T*, T*, const int32_t*, int32_t*);
      reinterpret_cast<Function>(a.library().geqp3)(&m, &n, by_columns, &stride, order, tau, work, &size, &info);
    }
  };
  const int32_t size = a.WorkSize([&] {
    T work = 0;
    run(nullptr, nullptr, nullptr, &work, -1);
    return RoundedSize(work);
  });
  T* const by_columns = a.TakeMatrix(m, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), m, n, by_columns);
  std::copy_n(a.template operand<int32_t>(1), n, a.template result<int32_t>(1));
  run(by_columns, a.template result<int32_t>(1), a.template result<T>(2), work, size);
  Transpose(by_columns, n, m, a.template result<T>(0));
}

// Needs rows >= columns >= reflectors, which PrepareLapack has checked.
template <typename T>
void Orgqr(LapackMatrix<T>& a) {
  const int32_t m = a.rows(), n = a.columns(), k = a.dim(1, 0), stride = std::max(1, m);
  int32_t info = 0;
  const int32_t size = a.WorkSize([&] {
    T work = 0;
    const int32_t query = -1;
    a.library().orgqr(&m, &n, &k, nullptr, &stride, nullptr, &work, &query, &info);
    return RoundedSize(work);
  });
  T* const by_columns = a.TakeMatrix(m, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), m, n, by_columns);
  a.library().orgqr(&m, &n, &k, by_columns, &stride, a.template operand<T>(1), work, &size, &info);
  Transpose(by_columns, n, m, a.template result<T>(0));
}

// Q C, C Q, Q^H C or C Q^H, where Q is the product of reflectors.
template <typename T>
void Ormqr(LapackMatrix<T>& a) {
  const int32_t m = a.result_dim(0, 0), n = a.result_dim(0, 1), k = a.dim(1, 0);
  const int32_t rows = a.rows(), columns = a.columns(), a_stride = std::max(1, rows), stride = std::max(1, m);
  const char side = a.Option("left", 1) != 0 ? 'L' : 'R';
  const char transpose = a.Option("transpose", 0) == 0 ? 'N' : kIsComplex<T> ? 'C' : 'T';
  int32_t info = 0;
  const int32_t size = a.WorkSize([&] {
    T work = 0;
    const int32_t query = -1;
    a.library().ormqr(&side, &transpose, &m, &n, &k, nullptr, &a_stride, nullptr, nullptr, &stride, &work, &query,
                      &info, 1, 1);
    return RoundedSize(work);
  });
  T* const reflectors = a.TakeMatrix(rows, columns);
  T* const c = a.TakeMatrix(m, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), rows, columns, reflectors);
  Transpose(a.template operand<T>(2), m, n, c);
  a.library().ormqr(&side, &transpose, &m, &n, &k, reflectors, &a_stride, a.template operand<T>(1), c, &stride, work,
                    &size, &info, 1, 1);
  Transpose(c, n, m, a.template result<T>(0));
}

// Each diagonal has n elements in HLO. The first element of the lower diagonal and the last one of the upper are not
// used.
template <typename T>
void Gtsv(LapackMatrix<T>& a) {
  const int32_t n = a.dim(1, 0), columns = a.dim(3, 1), stride = std::max(1, n);
  T* const b = a.TakeMatrix(n, columns);
  if (a.measures()) return;
  for (int i = 0; i < 3; ++i) std::copy_n(a.template operand<T>(i), n, a.template result<T>(i));
  Transpose(a.template operand<T>(3), n, columns, b);
  a.library().gtsv(&n, &columns, a.template result<T>(0) + (n > 0 ? 1 : 0), a.template result<T>(1),
                   a.template result<T>(2), b, &stride, a.template result<int32_t>(4));
  Transpose(b, columns, n, a.template result<T>(3));
}

// A = Q H Q^H: the result has H on the first subdiagonal and above, and the reflectors of Q below.
template <typename T>
void Gehrd(LapackMatrix<T>& a) {
  const int32_t n = a.rows(), stride = std::max(1, n);
  const int32_t low = a.Option("low", 1), high = a.Option("high", n);
  int32_t info = 0;
  const int32_t size = a.WorkSize([&] {
    T work = 0;
    const int32_t query = -1;
    a.library().gehrd(&n, &low, &high, nullptr, &stride, nullptr, &work, &query, &info);
    return RoundedSize(work);
  });
  T* const by_columns = a.TakeMatrix(n, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), n, n, by_columns);
  a.library().gehrd(&n, &low, &high, by_columns, &stride, a.template result<T>(1), work, &size,
                    a.template result<int32_t>(2));
  Transpose(by_columns, n, n, a.template result<T>(0));
}

// A = Q T Q^H for a symmetric A and a tridiagonal T.
template <typename T>
void Sytrd(LapackMatrix<T>& a) {
  using Real = typename LapackMatrix<T>::Real;
  const int32_t n = a.rows(), stride = std::max(1, n);
  const char uplo = a.Letter("uplo", 'L');
  int32_t info = 0;
  const int32_t size = a.WorkSize([&] {
    T work = 0;
    const int32_t query = -1;
    a.library().sytrd(&uplo, &n, nullptr, &stride, nullptr, nullptr, nullptr, &work, &query, &info, 1);
    return RoundedSize(work);
  });
  T* const by_columns = a.TakeMatrix(n, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), n, n, by_columns);
  a.library().sytrd(&uplo, &n, by_columns, &stride, a.template result<Real>(1), a.template result<Real>(2),
                    a.template result<T>(3), work, &size, a.template result<int32_t>(4), 1);
  Transpose(by_columns, n, n, a.template result<T>(0));
}

template <typename T>
constexpr LapackRoutine<T> kRoutines[] = {
    {"potrf", Potrf<T>}, {"cholesky", Cholesky<T>}, {"trsm", Trsm<T>},   {"getrf", Getrf<T>}, {"geqrf", Geqrf<T>},
    {"geqp3", Geqp3<T>}, {"orgqr", Orgqr<T>},       {"ungqr", Orgqr<T>}, {"ormqr", Ormqr<T>}, {"unmqr", Ormqr<T>},
    {"gtsv", Gtsv<T>},   {"gehrd", Gehrd<T>},       {"sytrd", Sytrd<T>}, {"hetrd", Sytrd<T>},
};

}  // namespace

template <typename T>
absl::Span<const LapackRoutine<T>> LapackFactorRoutines() {
  return kRoutines<T>;
}

XLAD_INSTANTIATE_LAPACK(LapackFactorRoutines);

}  // namespace xlad::runtime
