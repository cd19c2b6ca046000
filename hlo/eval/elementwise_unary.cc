// One-operand instructions that are not transcendental: signs, rounding, bits, parts of complex numbers. Results are
// exact, except that abs and sign of complex numbers are rounded.
#include <algorithm>
#include <bit>
#include <cmath>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/elementwise.h"

namespace xlad::hlo::eval {
namespace {

struct Abs {
  template <IntCarrier T>
  static T Apply(T x) {
    return x < 0 ? Subtract::Apply(T{0}, x) : x;
  }
  template <FloatCarrier T>
  static T Apply(T x) {
    return std::fabs(x);
  }
  static float Apply(Complex64 x) { return std::abs(Complex128(x)); }
  static double Apply(Complex128 x) { return std::abs(x); }
};

struct Negate {
  template <IntCarrier T>
  static T Apply(T x) {
    return Subtract::Apply(T{0}, x);
  }
  template <typename T>
    requires FloatCarrier<T> || ComplexCarrier<T>
  static T Apply(T x) {
    return -x;
  }
};

struct Not {
  template <IntCarrier T>
  static T Apply(T x) {
    return ~x;
  }
  static Bool Apply(Bool x) { return ToBool(!IsTrue(x)); }
};

struct Sign {
  template <IntCarrier T>
  static T Apply(T x) {
    return (x > 0) - (x < 0);
  }
  template <FloatCarrier T>
  static T Apply(T x) {
    return std::isnan(x) || x == 0 ? x : std::copysign(T{1}, x);  // The sign of zero is kept.
  }
  static Complex64 Apply(Complex64 x) { return Complex64(Apply(Complex128(x))); }
  static Complex128 Apply(Complex128 x) {
    if (std::isnan(x.real()) || std::isnan(x.imag())) return {NAN, NAN};
    // The modulus of two large parts would overflow, and that of two denormal parts would be rounded.
    const double largest = std::max(std::fabs(x.real()), std::fabs(x.imag()));
    if (std::isfinite(largest) && largest > 0x1p1022) x *= 0x1p-2;
    if (largest < 0x1p-1000) x *= 0x1p200;
    const double magnitude = std::abs(x);
    return magnitude == 0 ? Complex128(0) : x / magnitude;
  }
};

struct Ceil {
  template <FloatCarrier T>
  static T Apply(T x) {
    return std::ceil(x);
  }
};
struct Floor {
  template <FloatCarrier T>
  static T Apply(T x) {
    return std::floor(x);
  }
};
struct RoundAwayFromZero {
  template <FloatCarrier T>
  static T Apply(T x) {
    return std::round(x);
  }
};
struct RoundToEven {
  template <FloatCarrier T>
  static T Apply(T x) {
    return std::nearbyint(x);  // Rounds to even in the default rounding mode.
  }
};
struct IsFinite {
  template <FloatCarrier T>
  static Bool Apply(T x) {
    return ToBool(std::isfinite(x));
  }
};

struct Real {
  template <FloatCarrier T>
  static T Apply(T x) {
    return x;
  }
  template <typename T>
  static T Apply(std::complex<T> x) {
    return x.real();
  }
};
struct Imag {
  template <FloatCarrier T>
  static T Apply(T) {
    return T{0};
  }
  template <typename T>
  static T Apply(std::complex<T> x) {
    return x.imag();
  }
};

// Counts the bits of the element type. The carrier is wider if the element type has fewer than 8 bits.
template <typename F>
absl::StatusOr<Value> EvalCount(const Operation& operation, const F& count) {
  const ElementType type = operation.operand(0).type();
  const int width = tensor::BitWidth(type);
  return VisitCarrier(CarrierOf(type), [&]<typename T>() -> absl::StatusOr<Value> {
    if constexpr (IntCarrier<T>) {
      const Value wide = Widen(operation.operand(0));
      Array out({CarrierOf(type), operation.result().dims});
      const auto x = wide.values<T>();
      const auto y = out.values<T>();
      for (const int64_t i : tensor::Indices(x)) y[i] = count(tensor::LowBits(x[i], width), width);
      return Value(Narrow(std::move(out), type));
    }
    return NotDefined(operation, type);
  });
}

absl::StatusOr<Value> EvalPopcnt(const Operation& operation) {
  return EvalCount(operation, [](uint64_t x, int) { return std::popcount(x); });
}

absl::StatusOr<Value> EvalCountLeadingZeros(const Operation& operation) {
  return EvalCount(operation, [](uint64_t x, int width) { return std::countl_zero(x) - (64 - width); });
}

constexpr EvalRow kElementwiseUnaryRows[] = {
    {Opcode::kAbs, EvalUnary<Abs>},
    {Opcode::kNegate, EvalUnary<Negate>},
    {Opcode::kNot, EvalUnary<Not>},
    {Opcode::kSign, EvalUnary<Sign>},
    {Opcode::kCeil, EvalUnary<Ceil>},
    {Opcode::kFloor, EvalUnary<Floor>},
    {Opcode::kRoundNearestAfz, EvalUnary<RoundAwayFromZero>},
    {Opcode::kRoundNearestEven, EvalUnary<RoundToEven>},
    {Opcode::kIsFinite, EvalUnary<IsFinite>},
    {Opcode::kReal, EvalUnary<Real>},
    {Opcode::kImag, EvalUnary<Imag>},
    {Opcode::kPopcnt, EvalPopcnt},
    {Opcode::kCountLeadingZeros, EvalCountLeadingZeros},
};

}  // namespace

absl::Span<const EvalRow> UnaryRows() { return kElementwiseUnaryRows; }

}  // namespace xlad::hlo::eval
