// OpenBLAS, which has LAPACK: loaded when the first executable needs it, so that programs without linear algebra run
// without it.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace xlad::runtime {

// The routines for one element type by their names without its letter. LAPACK's names for complex types differ for
// orthogonal (unitary) and symmetric (Hermitian) matrices: orgqr is ungqr, syevd is heevd.
//
// Arguments are those of LAPACK's documentation (netlib.org/lapack): pointers to everything, matrices by columns, and
// at the end the length of each text argument, as gfortran passes it.
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
  void (*sytrd)(Flag uplo, Int n, T* a, Int lda, Real* diagonal, Real* beside, T* tau, T* work, Int lwork,
                int32_t* info, Length);
  // The following have other arguments for complex types: see lapack_spectral.cc.
  void (*geqp3)();
  void (*syevd)();
  void (*gesdd)();
  void (*gesvd)();
  void (*geev)();
  void (*gees)();
};

// FailedPrecondition if OpenBLAS is not installed, or if it is a build that only one thread may call; the error says
// what to install. A call uses the calling thread alone. Thread-safe, and so are the routines; T is float, double, or a
// complex number of these.
template <typename T>
absl::StatusOr<const LapackLibrary<T>*> LoadLapack();

}  // namespace xlad::runtime
