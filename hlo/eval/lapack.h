// Custom calls to LAPACK routines, as JAX emits them for CPUs ("lapack_sgetrf_ffi"). All types are computed in double
// or complex<double>.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hlo/eval/numeric.h"
#include "hlo/eval/operation.h"
#include "tensor/lapack_call.h"

namespace xlad::hlo::eval {

// A row-major matrix inside an array.
template <typename T>
struct MatrixRef {
  T* data;
  int64_t rows, columns;
  T& operator()(int64_t i, int64_t j) const { return data[i * columns + j]; }
};

// The operands and results for one matrix of the batch. Elements that have the type of the call are of type T (double
// or complex<double>). Real elements in a complex call are double, and integers are int32_t.
struct LapackProblem {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  std::vector<Dims> in_dims, out_dims;  // Dimensions of one matrix or vector, without those of the batch.
  const std::string* config;            // The backend config: "uplo = 76 : ui8, ...".

  template <typename T>
  const T* operand(int64_t i) const {
    return reinterpret_cast<const T*>(in[i]);
  }
  template <typename T>
  T* result(int64_t i) const {
    return reinterpret_cast<T*>(out[i]);
  }
  template <typename T>
  MatrixRef<T> matrix(int64_t i) const {
    return {result<T>(i), out_dims[i][0], out_dims[i][1]};
  }
  // The character that is the value of the option `name`, or `otherwise` if the config does not have the option.
  char Flag(absl::string_view name, char otherwise) const { return tensor::LapackOption(*config, name, otherwise); }
};

// The magnitude by which LAPACK compares candidates for a pivot.
inline double PivotSize(double x) { return std::fabs(x); }
inline double PivotSize(Complex128 x) { return std::fabs(x.real()) + std::fabs(x.imag()); }

// x * 2^exponent.
inline double ScaleByPowerOfTwo(double x, int exponent) { return std::scalbn(x, exponent); }
inline Complex128 ScaleByPowerOfTwo(Complex128 x, int exponent) {
  return {std::scalbn(x.real(), exponent), std::scalbn(x.imag(), exponent)};
}

// Scales a matrix by a power of two, which is exact except for underflow, so that its largest element is about 1 and
// squares do not overflow. Returns the exponent of the power that restores the elements.
template <typename T>
int ScaleToUnit(const MatrixRef<T>& a) {
  double largest = 0;
  for (int64_t i = 0; i < a.rows * a.columns; ++i) largest = std::max(largest, PivotSize(a.data[i]));
  if (largest == 0 || !std::isfinite(largest)) return 0;
  const int exponent = std::ilogb(largest);
  for (int64_t i = 0; i < a.rows * a.columns; ++i) a.data[i] = ScaleByPowerOfTwo(a.data[i], -exponent);
  return exponent;
}

// A routine for double and for complex<double>. Its operands and results are those of tensor/lapack_call.h.
struct LapackFunction {
  absl::string_view name;  // "getrf": without the letter of the type.
  absl::Status (*real)(const LapackProblem&);
  absl::Status (*complex)(const LapackProblem&);
};
absl::Span<const LapackFunction> LapackFactorFunctions();
absl::Span<const LapackFunction> LapackSpectralFunctions();

// The function of a custom-call target, or null if the target is not a LAPACK routine or has no evaluator.
const LapackFunction* FindLapackFunction(absl::string_view target);
absl::StatusOr<Value> EvalLapack(const Operation& operation, const LapackFunction& function);
// All targets with a function, for messages: "lapack_*potrf_ffi, lapack_*getrf_ffi, ...".
std::string LapackTargets();

}  // namespace xlad::hlo::eval
