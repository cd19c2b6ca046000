// Functions of two operands on carrier types (hlo/eval/numeric.h). They implement the instructions of the same names,
// and reducers that consist of one such instruction.
//
// Each instruction is a struct with Apply(x, y) for the carriers that HLO defines it for. Integers wrap.
// hlo/eval/evaluate.h lists the results for division by zero, signed zeros and NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "hlo/attributes.h"
#include "hlo/eval/numeric.h"

namespace xlad::hlo::eval {

template <IntCarrier T>
using UnsignedOf = std::make_unsigned_t<T>;

// The unsigned type of at least 32 bits for the arithmetic on T. A narrower type would be promoted to int, whose
// overflow is undefined.
template <IntCarrier T>
using WideUnsigned = std::conditional_t<sizeof(T) < 4, uint32_t, UnsignedOf<T>>;

struct Add {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return WideUnsigned<T>(x) + WideUnsigned<T>(y);
  }
  template <typename T>
    requires FloatCarrier<T> || ComplexCarrier<T>
  static T Apply(T x, T y) {
    return x + y;
  }
  static Bool Apply(Bool x, Bool y) { return ToBool(IsTrue(x) || IsTrue(y)); }
};

struct Subtract {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return WideUnsigned<T>(x) - WideUnsigned<T>(y);
  }
  template <typename T>
    requires FloatCarrier<T> || ComplexCarrier<T>
  static T Apply(T x, T y) {
    return x - y;
  }
};

struct Multiply {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return WideUnsigned<T>(x) * WideUnsigned<T>(y);
  }
  template <FloatCarrier T>
  static T Apply(T x, T y) {
    return x * y;
  }
  template <ComplexCarrier T>
  static T Apply(T x, T y) {
    return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
  }
  static Bool Apply(Bool x, Bool y) { return ToBool(IsTrue(x) && IsTrue(y)); }
};

struct Divide {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    if (y == 0) return ~T{0};  // All bits set.
    if constexpr (SignedCarrier<T>) {
      if (y == T{-1}) return Subtract::Apply(T{0}, x);
    }
    return x / y;
  }
  template <FloatCarrier T>
  static T Apply(T x, T y) {
    return x / y;
  }
  static Complex64 Apply(Complex64 x, Complex64 y) { return Complex64(Complex128(x) / Complex128(y)); }
  static Complex128 Apply(Complex128 x, Complex128 y) {
    using Long = std::complex<long double>;
    return Complex128(Long(x) / Long(y));
  }
};

struct Remainder {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    if (y == 0) return x;
    if constexpr (SignedCarrier<T>) {
      if (y == T{-1}) return 0;
    }
    return x % y;
  }
  template <FloatCarrier T>
  static T Apply(T x, T y) {
    return std::fmod(x, y);
  }
};

// Whether `x comparison y` holds. Complex numbers have only kEq and kNe.
template <typename T>
bool ComparisonHolds(Comparison comparison, const T& x, const T& y) {
  if constexpr (ComplexCarrier<T>) {
    return comparison == Comparison::kNe ? x != y : x == y;
  } else {
    switch (comparison) {
      case Comparison::kEq:
        return x == y;
      case Comparison::kNe:
        return x != y;
      case Comparison::kGe:
        return x >= y;
      case Comparison::kGt:
        return x > y;
      case Comparison::kLe:
        return x <= y;
      case Comparison::kLt:
        return x < y;
    }
    return false;
  }
}

template <ComplexCarrier T>
bool ComplexLess(T x, T y) {
  return x.real() < y.real() || (x.real() == y.real() && x.imag() < y.imag());
}

// Maximum and Minimum of floats are NaN if an operand is NaN, and +0 is larger than -0. Complex numbers are compared by
// their real parts, then by their imaginary parts.
struct Maximum {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return std::max(x, y);
  }
  template <FloatCarrier T>
  static T Apply(T x, T y) {
    if (x == y) return std::signbit(x) ? y : x;
    return std::isnan(x) || x > y ? x : y;
  }
  template <ComplexCarrier T>
  static T Apply(T x, T y) {
    return ComplexLess(x, y) ? y : x;
  }
  static Bool Apply(Bool x, Bool y) { return std::max(x, y); }
};

struct Minimum {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return std::min(x, y);
  }
  template <FloatCarrier T>
  static T Apply(T x, T y) {
    if (x == y) return std::signbit(x) ? x : y;
    return std::isnan(x) || x < y ? x : y;
  }
  template <ComplexCarrier T>
  static T Apply(T x, T y) {
    return ComplexLess(y, x) ? y : x;
  }
  static Bool Apply(Bool x, Bool y) { return std::min(x, y); }
};

struct And {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return x & y;
  }
  static Bool Apply(Bool x, Bool y) { return ToBool(IsTrue(x) && IsTrue(y)); }
};
struct Or {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return x | y;
  }
  static Bool Apply(Bool x, Bool y) { return ToBool(IsTrue(x) || IsTrue(y)); }
};
struct Xor {
  template <IntCarrier T>
  static T Apply(T x, T y) {
    return x ^ y;
  }
  static Bool Apply(Bool x, Bool y) { return ToBool(x != y); }
};

struct Power {
  template <IntCarrier T>
  static T Apply(T base, T exponent) {
    if constexpr (SignedCarrier<T>) {
      if (exponent < 0) {
        if (base == 1) return 1;
        if (base == T{-1}) return exponent % 2 == 0 ? T{1} : T{-1};
        return 0;
      }
    }
    T result = 1;
    for (UnsignedOf<T> left = exponent; left != 0; left >>= 1) {
      if ((left & 1) != 0) result = Multiply::Apply(result, base);
      base = Multiply::Apply(base, base);
    }
    return result;
  }
  static float Apply(float x, float y) { return std::pow(double{x}, double{y}); }
  static double Apply(double x, double y) { return std::pow(1.0L * x, y); }
  static Bool Apply(Bool x, Bool y) { return ToBool(IsTrue(x) || !IsTrue(y)); }
  static Complex64 Apply(Complex64 x, Complex64 y) { return Complex64(ComplexPower(Complex128(x), Complex128(y))); }
  static Complex128 Apply(Complex128 x, Complex128 y) {
    using Long = std::complex<long double>;
    return Complex128(ComplexPower(Long(x), Long(y)));
  }

 private:
  template <typename C>
  static C ComplexPower(C x, C y) {
    if (y == C(0)) return C(1);
    if (x == C(0)) return C(0);
    return std::pow(x, y);
  }
};

// The complex atan2(y, x) is -i * log((x + iy) / sqrt(x^2 + y^2)). This formula determines its branch.
struct Atan2 {
  static float Apply(float y, float x) { return std::atan2(double{y}, double{x}); }
  static double Apply(double y, double x) { return std::atan2(1.0L * y, x); }
  static Complex64 Apply(Complex64 y, Complex64 x) { return Complex64(Apply(Complex128(y), Complex128(x))); }
  static Complex128 Apply(Complex128 y, Complex128 x) {
    using Long = std::complex<long double>;
    const Long i(0, 1), a(y), b(x);
    return Complex128(-i * std::log((b + i * a) / std::sqrt(a * a + b * b)));
  }
};

}  // namespace xlad::hlo::eval
