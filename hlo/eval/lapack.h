// custom-calls to LAPACK routines, as JAX emits them on CPUs ("lapack_sgetrf_ffi"), computed in double or
// complex<double> whatever their type.
#pragma once

#include "hlo/eval/numeric.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A row-major matrix inside an array.
template <typename T>
struct MatrixRef {
  T* data;
  int64_t rows, columns;
  T& operator()(int64_t i, int64_t j) const { return data[i * columns + j]; }
};

inline double Conj(double x) { return x; }
inline Complex128 Conj(Complex128 x) { return std::conj(x); }

// One matrix of the batch: pointers to operands and to results, widened: T for the call's own type, double for real
// results beside complex ones, int32_t for integers.
struct LapackProblem {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  std::vector<Dims> in_dims, out_dims;  // Of one matrix or vector, without the batch.
  const std::string* config;            // "uplo = 76 : ui8, ..."

  template <typename T>
  const T* operand(size_t i) const {
    return reinterpret_cast<const T*>(in[i]);
  }
  template <typename T>
  T* result(size_t i) const {
    return reinterpret_cast<T*>(out[i]);
  }
  template <typename T>
  MatrixRef<T> matrix(size_t i) const {
    return {result<T>(i), out_dims[i][0], out_dims[i][1]};
  }
  // A character attribute; `otherwise` where the call does not say.
  char Flag(absl::string_view name, char otherwise) const;
};

// A routine for double and for complex<double>. `signature`: what operands and results look like behind the batch's
// dimensions, one word each: letters are dimensions ("mn"; k is min(m, n) where m and n come first), "-" is none;
// ":r" is real where the call is complex, ":i" is s32.
struct LapackRoutine {
  absl::string_view name;  // Without the type's letter.
  absl::string_view signature;
  absl::Status (*real)(const LapackProblem&);
  absl::Status (*complex)(const LapackProblem&);
};
absl::Span<const LapackRoutine> LapackFactorRoutines();
absl::Span<const LapackRoutine> LapackSpectralRoutines();

// nullptr where `target` is no routine that is known here.
const LapackRoutine* FindLapackRoutine(absl::string_view target);
absl::StatusOr<Value> EvalLapack(const Operation& operation, const LapackRoutine& routine);
// "lapack_*potrf_ffi, lapack_*getrf_ffi, ...".
std::string LapackTargets();

}  // namespace xlad::hlo::eval
