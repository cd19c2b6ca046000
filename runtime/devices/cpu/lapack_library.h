// OpenBLAS, which contains LAPACK. It is loaded when the first executable needs it, so that programs without linear
// algebra do not need it installed.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace xlad::runtime {

// The routines for one element type. Names lack the letter for the type. For complex types, some of LAPACK's names
// differ, because matrices are unitary instead of orthogonal and Hermitian instead of symmetric: orgqr is called ungqr,
// and syevd is called heevd.
//
// The arguments are those of LAPACK's documentation (netlib.org/lapack). All are pointers, matrices are in column-major
// order, and the last arguments are the lengths of the text arguments, as in gfortran's calling convention.
template <typename T>
struct LapackLibrary {
  using Real = decltype(std::real(T()));
  using Int = const int32_t*;
  using Flag = const char*;
  using Length = size_t;

  void (*potrf)(Flag uplo, Int n, T* a, Int lda, int32_t* info, Length);
  void (*trsm)(Flag side, Flag uplo, Flag transpose, Flag diagonal, Int m, Int n, const T* alpha, const T* a, Int lda,
               T* b, Int ldb, Length, Length, Length, Length);
  void (*getrf)(Int m, Int n, T* a, Int lda, int32_t* pivots, int32_t* info);
  void (*gtsv)(Int n, Int columns, T* lower, T* diagonal, T* upper, T* b, Int ldb, int32_t* info);
  void (*geqrf)(Int m, Int n, T* a, Int lda, T* tau, T* work, Int lwork, int32_t* info);
  void (*orgqr)(Int m, Int n, Int k, T* a, Int lda, const T* tau, T* work, Int lwork, int32_t* info);
  void (*ormqr)(Flag side, Flag transpose, Int m, Int n, Int k, const T* a, Int lda, const T* tau, T* c, Int ldc,
                T* work, Int lwork, int32_t* info, Length, Length);
  void (*gehrd)(Int n, Int low, Int high, T* a, Int lda, T* tau, T* work, Int lwork, int32_t* info);
  void (*sytrd)(Flag uplo, Int n, T* a, Int lda, Real* diagonal, Real* off_diagonal, T* tau, T* work, Int lwork,
                int32_t* info, Length);
  // The following routines have other arguments for complex types; see lapack_spectral.cc.
  void (*geqp3)();
  void (*syevd)();
  void (*gesdd)();
  void (*gesvd)();
  void (*geev)();
  void (*gees)();
};

// FailedPrecondition if OpenBLAS is not installed, or if it is a build that only one thread may call; the error says
// what to install. The routines use the calling thread alone. This function and the routines are thread-safe. T is
// float, double, or a complex number of these.
template <typename T>
absl::StatusOr<const LapackLibrary<T>*> LoadLapack();

}  // namespace xlad::runtime
