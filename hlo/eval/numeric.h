// Numbers in the evaluator: small floats and sub-byte integers, and the C++ types that arithmetic is done in.
//
// Arithmetic knows 13 carrier types: bool (as uint8_t 0/1), (u)int8..64, float, double and their complex numbers.
// f16, bf16, f8* and f4 are computed in float and rounded back to nearest even; s1, s2, s4 in int8_t and u1, u2, u4
// in uint8_t and wrapped back.
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

namespace xlad::hlo::eval {

using tensor::DecodeBf16;
using tensor::DecodeSmallFloat;
using tensor::EncodeBf16;
using tensor::EncodeSmallFloat;
using tensor::IsSmallFloat;

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

// pred's carrier: a type of its own, so that it is told apart from u8.
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

// The element type whose C++ type elements of `type` are computed in.
ElementType CarrierOf(ElementType type);

// A float's place in the total order -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN.
template <FloatCarrier T>
auto TotalOrder(T x) {
  using Int = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  const Int bits = std::bit_cast<Int>(x);
  return bits < 0 ? std::numeric_limits<Int>::max() ^ bits : bits;
}

// Keeps the low bits of a sub-byte integer, sign-extended for signed types.
int8_t WrapSubByte(ElementType type, int8_t value);

// The elements in their carrier type; shares the bytes where `value` has it already.
Value Widen(const Value& value);
// Carrier elements back to `type`.
Array Narrow(Array carrier, ElementType type);
// Floats rounded to the small float type of `shape`.
Array NarrowFloats(absl::Span<const float> floats, const tensor::Shape& shape);

// A double that rounds to every narrower float as `value` does (rounded to odd).
double ToDoubleForRounding(int64_t value);
double ToDoubleForRounding(uint64_t value);

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
  XLAD_CHECK(carrier == ElementType::kF32) << tensor::ToString(carrier) << " is no carrier type";
  return f.template operator()<float>();
}

}  // namespace xlad::hlo::eval
