// Eigenvalues, singular values and Schur forms by LAPACK: syevd, gesdd, gesvd, geev, gees.
#include <cmath>

#include "runtime/devices/cpu/lapack_matrix.h"

namespace xlad::runtime {
namespace {

template <typename T>
using RealOf = typename LapackMatrix<T>::Real;

// The eigenvectors of A^T = conj(A) are the conjugates of those of A. LAPACK returns them as columns, so they are
// transposed.
template <typename T>
void Syevd(LapackMatrix<T>& a) {
  using Real = RealOf<T>;
  const int32_t n = a.rows(), stride = std::max(1, n);
  const char mode = a.Letter("mode", 'V'), uplo = Opposite(a.Letter("uplo", 'L'));
  int32_t ignored = 0;
  const auto run = [&](T* matrix, Real* values, T* work, int32_t size, Real* real_work, int32_t real_size,
                       int32_t* numbers, int32_t numbers_size, int32_t* info) {
    if constexpr (kIsComplex<T>) {
      using Function =
          void (*)(const char*, const char*, const int32_t*, T*, const int32_t*, Real*, T*, const int32_t*, Real*,
                   const int32_t*, int32_t*, const int32_t*, int32_t*, size_t, size_t);
      reinterpret_cast<Function>(a.library().syevd)(&mode, &uplo, &n, matrix, &stride, values, work, &size, real_work,
                                                    &real_size, numbers, &numbers_size, info, 1, 1);
    } else {
      using Function = void (*)(const char*, const char*, const int32_t*, T*, const int32_t*, T*, T*, const int32_t*,
                                int32_t*, const int32_t*, int32_t*, size_t, size_t);
      reinterpret_cast<Function>(a.library().syevd)(&mode, &uplo, &n, matrix, &stride, values, work, &size, numbers,
                                                    &numbers_size, info, 1, 1);
    }
  };
  T work_answer = 0;
  Real real_answer = 0;
  int32_t numbers_answer = 0;
  const auto ask = [&] { run(nullptr, nullptr, &work_answer, -1, &real_answer, -1, &numbers_answer, -1, &ignored); };
  const int32_t size = a.WorkSize([&] { return ask(), RoundedSize(work_answer); });
  const int32_t real_size = a.WorkSize([&] { return ask(), RoundedSize(real_answer); });
  const int32_t numbers_size = a.WorkSize([&] { return ask(), numbers_answer; });
  T* const vectors = a.TakeMatrix(n, n);
  T* const work = a.Take(size);
  Real* const real_work = a.template Take<Real>(real_size);
  int32_t* const numbers = a.template Take<int32_t>(numbers_size);
  if (a.measures()) return;
  CopyMatrix(a.template operand<T>(0), n, n, vectors);
  run(vectors, a.template result<Real>(1), work, size, real_work, real_size, numbers, numbers_size,
      a.template result<int32_t>(2));
  Transpose(vectors, n, n, a.template result<T>(0), /*conjugate=*/true);
}

// A = U S V^H is computed as A^T = conj(V) S U^T. The columns of conj(V) are stored like the rows of V^H, and those of
// U^T like the rows of U.
template <typename T, bool kDivide>
void Svd(LapackMatrix<T>& a) {
  using Real = RealOf<T>;
  // The rows and columns of A^T, which LAPACK factors.
  const int32_t m = a.columns(), n = a.rows(), k = std::min(m, n);
  const char mode = a.Letter("mode", 'A');
  const int32_t stride = std::max(1, m), u_stride = stride, vt_stride = std::max(1, mode == 'A' ? n : k);
  // The size of the real work area of complex routines, from their documentation.
  const int64_t small = k, large = std::max(m, n);
  const int64_t divided = mode == 'N' ? 7 * small : small * std::max(5 * small + 7, 2 * large + 2 * small + 1);
  Real* const real_work = a.template Take<Real>(!kIsComplex<T> ? 0 : kDivide ? divided : 5 * small);
  int32_t* const numbers = a.template Take<int32_t>(kDivide ? 8 * small : 0);
  int32_t ignored = 0;
  const auto run = [&](T* matrix, Real* values, T* u, T* vt, T* work, int32_t size, int32_t* info) {
    using Int = const int32_t*;
    if constexpr (kDivide && kIsComplex<T>) {
      using Function = void (*)(const char*, Int, Int, T*, Int, Real*, T*, Int, T*, Int, T*, Int, Real*, int32_t*,
                                int32_t*, size_t);
      reinterpret_cast<Function>(a.library().gesdd)(&mode, &m, &n, matrix, &stride, values, u, &u_stride, vt,
                                                    &vt_stride, work, &size, real_work, numbers, info, 1);
    } else if constexpr (kDivide) {
      using Function =
          void (*)(const char*, Int, Int, T*, Int, T*, T*, Int, T*, Int, T*, Int, int32_t*, int32_t*, size_t);
      reinterpret_cast<Function>(a.library().gesdd)(&mode, &m, &n, matrix, &stride, values, u, &u_stride, vt,
                                                    &vt_stride, work, &size, numbers, info, 1);
    } else if constexpr (kIsComplex<T>) {
      using Function = void (*)(const char*, const char*, Int, Int, T*, Int, Real*, T*, Int, T*, Int, T*, Int, Real*,
                                int32_t*, size_t, size_t);
      reinterpret_cast<Function>(a.library().gesvd)(&mode, &mode, &m, &n, matrix, &stride, values, u, &u_stride, vt,
                                                    &vt_stride, work, &size, real_work, info, 1, 1);
    } else {
      using Function = void (*)(const char*, const char*, Int, Int, T*, Int, T*, T*, Int, T*, Int, T*, Int, int32_t*,
                                size_t, size_t);
      reinterpret_cast<Function>(a.library().gesvd)(&mode, &mode, &m, &n, matrix, &stride, values, u, &u_stride, vt,
                                                    &vt_stride, work, &size, info, 1, 1);
    }
  };
  const int32_t size = a.WorkSize([&] {
    T answer = 0;
    run(nullptr, nullptr, nullptr, nullptr, &answer, -1, &ignored);
    return RoundedSize(answer);
  });
  T* const work = a.Take(size);
  if (a.measures()) return;
  T* const matrix = a.template result<T>(0);
  CopyMatrix(a.template operand<T>(0), m, n, matrix);
  if (mode == 'N') {
    for (int i : {2, 3}) SetZero(a.result_dim(i, 0), a.result_dim(i, 1), a.template result<T>(i));
  }
  run(matrix, a.template result<Real>(1), a.template result<T>(3), a.template result<T>(2), work, size,
      a.template result<int32_t>(4));
}

// LAPACK returns the eigenvectors of a pair of conjugate eigenvalues of a real matrix as two columns: the real and the
// imaginary part of the first. `columns` has n vectors of n elements.
template <typename T, typename Complex>
void UnpackVectors(const T* columns, const T* imaginary_parts, int64_t n, Complex* vectors) {
  for (int64_t j = 0; j < n; ++j) {
    const bool is_pair = imaginary_parts[j] != T(0) && j + 1 < n;
    for (int64_t i = 0; i < n; ++i) {
      const T re = columns[j * n + i], im = is_pair ? columns[(j + 1) * n + i] : T(0);
      vectors[i * n + j] = {re, im};
      if (is_pair) vectors[i * n + j + 1] = {re, -im};
    }
    if (is_pair) ++j;
  }
}

template <typename T>
void Geev(LapackMatrix<T>& a) {
  using Real = RealOf<T>;
  using Complex = std::complex<Real>;
  const int32_t n = a.rows(), stride = std::max(1, n);
  const char left = a.Letter("compute_left", 'V'), right = a.Letter("compute_right", 'V');
  constexpr int kVectors = kIsComplex<T> ? 1 : 2;  // The number of the first result with vectors.
  Real* const real_work = a.template TakeMatrix<Real>(kIsComplex<T> ? 2 : 0, n);
  int32_t ignored = 0;
  const auto run = [&](T* matrix, T* values, Real* imaginary, T* vl, T* vr, T* work, int32_t size, int32_t* info) {
    using Int = const int32_t*;
    if constexpr (kIsComplex<T>) {
      using Function = void (*)(const char*, const char*, Int, T*, Int, T*, T*, Int, T*, Int, T*, Int, Real*, int32_t*,
                                size_t, size_t);
      reinterpret_cast<Function>(a.library().geev)(&left, &right, &n, matrix, &stride, values, vl, &stride, vr,
                                                   &stride, work, &size, real_work, info, 1, 1);
    } else {
      using Function = void (*)(const char*, const char*, Int, T*, Int, T*, T*, T*, Int, T*, Int, T*, Int, int32_t*,
                                size_t, size_t);
      reinterpret_cast<Function>(a.library().geev)(&left, &right, &n, matrix, &stride, values, imaginary, vl, &stride,
                                                   vr, &stride, work, &size, info, 1, 1);
    }
  };
  const int32_t size = a.WorkSize([&] {
    T answer = 0;
    run(nullptr, nullptr, nullptr, nullptr, nullptr, &answer, -1, &ignored);
    return RoundedSize(answer);
  });
  T* const matrix = a.TakeMatrix(n, n);
  T* const vl = a.TakeMatrix(n, n);
  T* const vr = a.TakeMatrix(n, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  const T* const from = a.template operand<T>(0);
  const bool finite = std::all_of(from, from + int64_t{n} * n, [](const T& x) {
    return std::isfinite(std::real(x)) && std::isfinite(std::imag(x));
  });
  T* const values = a.template result<T>(0);
  Real* const imaginary = kIsComplex<T> ? nullptr : a.template result<Real>(1);
  int32_t* const info = a.template result<int32_t>(kVectors + 2);
  SetZero(n, n, vl);
  SetZero(n, n, vr);
  if (finite) {
    Transpose(from, n, n, matrix);
    run(matrix, values, imaginary, vl, vr, work, size, info);
  } else {
    // LAPACK may not terminate if there are infinities or NaNs.
    *info = -4;
    std::fill_n(values, n, T(0));
    if (imaginary != nullptr) std::fill_n(imaginary, n, Real(0));
  }
  for (const bool is_right : {false, true}) {
    Complex* const vectors = a.template result<Complex>(kVectors + (is_right ? 1 : 0));
    if ((is_right ? right : left) != 'V') {
      SetZero(n, n, vectors);
    } else if constexpr (kIsComplex<T>) {
      Transpose(is_right ? vr : vl, n, n, vectors);
    } else {
      UnpackVectors(is_right ? vr : vl, imaginary, n, vectors);
    }
  }
}

// A = Z T Z^H for a triangular T (real: with blocks of 2 x 2 for conjugate eigenvalues).
template <typename T>
void Gees(LapackMatrix<T>& a) {
  using Real = RealOf<T>;
  const int32_t n = a.rows(), stride = std::max(1, n);
  const char mode = a.Letter("mode", 'V'), sort = 'N';
  constexpr int kSelected = kIsComplex<T> ? 3 : 4;  // The number of the result with the count of selected values.
  Real* const real_work = a.template Take<Real>(kIsComplex<T> ? n : 0);
  int32_t ignored = 0;
  const auto run = [&](T* matrix, int32_t* selected, T* values, T* imaginary, T* vectors, T* work, int32_t size,
                       int32_t* info) {
    using Int = const int32_t*;
    if constexpr (kIsComplex<T>) {
      using Function = void (*)(const char*, const char*, const void*, Int, T*, Int, int32_t*, T*, T*, Int, T*, Int,
                                Real*, int32_t*, int32_t*, size_t, size_t);
      reinterpret_cast<Function>(a.library().gees)(&mode, &sort, nullptr, &n, matrix, &stride, selected, values,
                                                   vectors, &stride, work, &size, real_work, nullptr, info, 1, 1);
    } else {
      using Function = void (*)(const char*, const char*, const void*, Int, T*, Int, int32_t*, T*, T*, T*, Int, T*, Int,
                                int32_t*, int32_t*, size_t, size_t);
      reinterpret_cast<Function>(a.library().gees)(&mode, &sort, nullptr, &n, matrix, &stride, selected, values,
                                                   imaginary, vectors, &stride, work, &size, nullptr, info, 1, 1);
    }
  };
  const int32_t size = a.WorkSize([&] {
    T answer = 0;
    run(nullptr, &ignored, nullptr, nullptr, nullptr, &answer, -1, &ignored);
    return RoundedSize(answer);
  });
  T* const matrix = a.TakeMatrix(n, n);
  T* const vectors = a.TakeMatrix(n, n);
  T* const work = a.Take(size);
  if (a.measures()) return;
  Transpose(a.template operand<T>(0), n, n, matrix);
  SetZero(n, n, vectors);
  run(matrix, a.template result<int32_t>(kSelected), a.template result<T>(2),
      kIsComplex<T> ? nullptr : a.template result<T>(3), vectors, work, size,
      a.template result<int32_t>(kSelected + 1));
  Transpose(matrix, n, n, a.template result<T>(0));
  Transpose(vectors, n, n, a.template result<T>(1));
}

template <typename T>
constexpr LapackRoutine<T> kSpectralRoutines[] = {
    {"syevd", Syevd<T>},      {"heevd", Syevd<T>}, {"gesdd", Svd<T, true>},
    {"gesvd", Svd<T, false>}, {"geev", Geev<T>},   {"gees", Gees<T>},
};

}  // namespace

template <typename T>
absl::Span<const LapackRoutine<T>> LapackSpectralRoutines() {
  return kSpectralRoutines<T>;
}

XLAD_INSTANTIATE_LAPACK(LapackSpectralRoutines);

}  // namespace xlad::runtime
