// The C++ types in which the evaluator computes ("carriers"), and conversions from and to the element types.
//
// There are 13 carriers: Bool, (u)int8_t to (u)int64_t, float, double, and complex numbers of these two. Elements of
// f16, bf16, f8* and f4 are computed in float, and the results are rounded as in tensor/small_float.h. Elements of s1,
// s2 and s4 are computed in int8_t and those of u1, u2 and u4 in uint8_t, and the results are wrapped.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "hlo/eval/value.h"
#include "tensor/small_float.h"
#include "tensor/sub_byte.h"

namespace xlad::hlo::eval {

using tensor::DecodeBf16;
using tensor::DecodeSmallFloat;
using tensor::DoublePrecisionOf;
using tensor::EncodeBf16;
using tensor::EncodeSmallFloat;
using tensor::IsSmallFloat;
using tensor::WrapSubByte;

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

// The carrier of pred. It is a separate type because uint8_t is the carrier of u8.
enum class Bool : uint8_t { kFalse = 0, kTrue = 1 };
inline Bool ToBool(bool value) { return value ? Bool::kTrue : Bool::kFalse; }
inline bool IsTrue(Bool value) { return value != Bool::kFalse; }

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;
template <typename T>
concept FloatCarrier = std::is_floating_point_v<T>;
template <typename T>
concept ComplexCarrier = kIsComplex<T>;
template <typename T>
concept IntCarrier = std::is_integral_v<T>;
template <typename T>
concept SignedCarrier = IntCarrier<T> && std::is_signed_v<T>;

// The element type whose C++ type is the carrier of `type`: f32 for bf16, s8 for s4.
ElementType CarrierOf(ElementType type);

// The position of a float in the total order -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN.
template <FloatCarrier T>
auto TotalOrder(T x) {
  using Int = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  const Int bits = std::bit_cast<Int>(x);
  return bits < 0 ? std::numeric_limits<Int>::max() ^ bits : bits;
}

// Converts the elements to their carrier type. The result shares the bytes of `value` if the carrier is the element
// type itself or has the same encoding.
Value Widen(const Value& value);
// The inverse of Widen: rounds or wraps elements of the carrier of `type` to `type`.
Array Narrow(Array carrier, ElementType type);
// Floats rounded to the small float type of `shape`.
Array NarrowFloats(absl::Span<const float> floats, const tensor::Shape& shape);

// Returns `value` rounded to odd: if the rounding is inexact, the last bit of the significand is set. Rounding the
// result to a narrower float gives the same as rounding `value` to it directly (Boldo and Melquiond, "Emulation of FMA
// and correctly rounded sums", 2008).
double RoundToOdd(int64_t value);
double RoundToOdd(uint64_t value);

inline double Conjugate(double x) { return x; }
inline Complex128 Conjugate(Complex128 x) { return std::conj(x); }

// Calls `f.template operator()<T>()` with the C++ type of a carrier.
template <typename F>
auto VisitCarrier(ElementType carrier, F&& f) {
  switch (carrier) {
    case ElementType::kPred:
      return f.template operator()<Bool>();
    case ElementType::kS8:
      return f.template operator()<int8_t>();
    case ElementType::kS16:
      return f.template operator()<int16_t>();
    case ElementType::kS32:
      return f.template operator()<int32_t>();
    case ElementType::kS64:
      return f.template operator()<int64_t>();
    case ElementType::kU8:
      return f.template operator()<uint8_t>();
    case ElementType::kU16:
      return f.template operator()<uint16_t>();
    case ElementType::kU32:
      return f.template operator()<uint32_t>();
    case ElementType::kU64:
      return f.template operator()<uint64_t>();
    case ElementType::kF64:
      return f.template operator()<double>();
    case ElementType::kC64:
      return f.template operator()<Complex64>();
    case ElementType::kC128:
      return f.template operator()<Complex128>();
    default:
      break;
  }
  XLAD_CHECK(carrier == ElementType::kF32) << tensor::ToString(carrier) << " is not a carrier type";
  return f.template operator()<float>();
}

}  // namespace xlad::hlo::eval
