// Transcendental instructions with one operand.
//
// f32 and smaller floats are computed in double, f64 in long double, and complex numbers likewise. On machines whose
// long double is wider than double, real results are correctly rounded except for rare cases of double rounding.
#include <cmath>

#include "hlo/eval/elementwise.h"

namespace xlad::hlo::eval {
namespace {

using LongComplex = std::complex<long double>;

// Op::On accepts double and long double, and also complex numbers of them if the instruction does.
template <typename Op>
struct RealOnly {
  static float Apply(float x) { return static_cast<float>(Op::On(double{x})); }
  static double Apply(double x) { return static_cast<double>(Op::On(static_cast<long double>(x))); }
};
template <typename Op>
struct RealOrComplex : RealOnly<Op> {
  using RealOnly<Op>::Apply;
  static Complex64 Apply(Complex64 x) { return Complex64(Op::On(Complex128(x))); }
  static Complex128 Apply(Complex128 x) { return Complex128(Op::On(LongComplex(x))); }
};

// The functions of the C library, and those of complex numbers that the C++ library lacks.
namespace functions {

#define XLAD_C_MATH(opcode, types, function) using std::function;
#include "hlo/c_math.def"
#undef XLAD_C_MATH

// For z = a + ib, e^z - 1 = expm1(a) cos b + (cos b - 1) + i e^a sin b, with cos b - 1 = -2 sin^2(b/2).
template <typename R>
std::complex<R> expm1(std::complex<R> z) {
  const R a = z.real(), b = z.imag(), half = std::sin(b / 2);
  const R imag = b == 0 ? b : std::exp(a) * std::sin(b);
  return {std::expm1(a) * std::cos(b) - 2 * half * half, imag};
}

// For z = a + ib, log|1 + z| = log1p(a (2 + a) + b^2) / 2, which is accurate if z is small. If z is very large, the
// squares overflow, and if 1 + z is small, they cancel; the library's log(1 + z) is used then.
template <typename R>
std::complex<R> log1p(std::complex<R> z) {
  const R a = z.real(), b = z.imag();
  const R squares = a * (2 + a) + b * b;
  if (!(std::fabs(a) < R(1e100)) || !(std::fabs(b) < R(1e100)) || squares < R(-0.5)) {
    return std::log(std::complex<R>(1 + a, b));
  }
  return {std::log1p(squares) / 2, std::atan2(b, 1 + a)};
}

}  // namespace functions

#define XLAD_C_MATH(opcode, types, function) \
  struct opcode {                            \
    template <typename T>                    \
    static T On(T x) {                       \
      return functions::function(x);         \
    }                                        \
  };
#include "hlo/c_math.def"
#undef XLAD_C_MATH

struct Logistic {
  template <typename T>
  static T On(T x) {
    return T(1) / (T(1) + std::exp(-x));
  }
};

struct StdSqrt {
  template <typename T>
  static T On(T x) {
    return std::sqrt(x);
  }
};

// The square root of a double is correctly rounded. If it were computed in long double, it would be rounded twice.
struct Sqrt : RealOrComplex<StdSqrt> {
  using RealOrComplex<StdSqrt>::Apply;
  static double Apply(double x) { return std::sqrt(x); }
};

struct Rsqrt {
  template <typename T>
  static T On(T x) {
    return T(1) / std::sqrt(x);
  }
};

constexpr EvalRow kElementwiseMathRows[] = {
#define XLAD_C_MATH(opcode, types, function) {Opcode::k##opcode, EvalUnary<types<opcode>>},
#include "hlo/c_math.def"
#undef XLAD_C_MATH
    {Opcode::kLogistic, EvalUnary<RealOrComplex<Logistic>>},
    {Opcode::kRsqrt, EvalUnary<RealOrComplex<Rsqrt>>},
    {Opcode::kSqrt, EvalUnary<Sqrt>},
};

}  // namespace

absl::Span<const EvalRow> UnaryMathRows() { return kElementwiseMathRows; }

}  // namespace xlad::hlo::eval
