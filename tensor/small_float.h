// The codec of floating-point types of at most 16 bits. Converts between their bits and C++'s float and double.
//
// Encoding rounds to nearest, ties to even (f8e8m0fnu: ties up). The format determines the results for values that
// overflow and for NaN, as in the ml_dtypes package and XLA:
//
//   format                              overflow               NaN
//   f16, bf16, f8e5m2, f8e4m3, f8e3m4   infinity               NaN
//   f8e4m3fn, f8e8m0fnu, fnuz types     NaN                    NaN
//   f4e2m1fn                            largest finite value   zero
//
// Decoding is exact and keeps the payload of a NaN for types with infinities.
//
// EncodeSmallFloat and DecodeSmallFloat choose the format at run time; SmallFloat<kType> is for inner loops.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/element_type.h"

namespace xlad::tensor {

// Whether the type is floating with at most 16 bits.
bool IsSmallFloat(ElementType type);

// `value` rounded to `type`, as the low BitWidth(type) bits. `type` is a small float. The value is rounded only once,
// except that it is first rounded to a float for f8e8m0fnu.
uint16_t EncodeSmallFloat(ElementType type, double value);
float DecodeSmallFloat(ElementType type, uint16_t bits);

// The bits of a format from the highest: one sign bit, then the exponent, then the mantissa. Exponent 0 means
// zero or a subnormal number.
struct FloatFormat {
  enum class Specials {
    kIeee,          // The highest exponent means infinity (mantissa 0) or NaN.
    kNanOnly,       // "fn": all bits of exponent and mantissa set mean NaN. No infinity.
    kUnsignedZero,  // "fnuz": the bits of -0 mean NaN. No infinity.
    kNone,          // Finite values only.
  };

  ElementType type;
  int bits, mantissa_bits, bias;
  Specials specials;
  // The encodings of the largest finite value, of the result for larger values, and of a positive NaN. The fnuz types
  // have only one NaN, 0x80. f4e2m1fn has no NaN; a positive NaN is encoded as -0.
  uint16_t max_finite, overflow, nan;
};

inline constexpr FloatFormat kFloatFormats[] = {
    {ElementType::kF16, 16, 10, 15, FloatFormat::Specials::kIeee, 0x7BFF, 0x7C00, 0x7E00},
    {ElementType::kBF16, 16, 7, 127, FloatFormat::Specials::kIeee, 0x7F7F, 0x7F80, 0x7FC0},
    {ElementType::kF8E5M2, 8, 2, 15, FloatFormat::Specials::kIeee, 0x7B, 0x7C, 0x7E},
    {ElementType::kF8E4M3, 8, 3, 7, FloatFormat::Specials::kIeee, 0x77, 0x78, 0x7C},
    {ElementType::kF8E3M4, 8, 4, 3, FloatFormat::Specials::kIeee, 0x6F, 0x70, 0x78},
    {ElementType::kF8E4M3FN, 8, 3, 7, FloatFormat::Specials::kNanOnly, 0x7E, 0x7F, 0x7F},
    {ElementType::kF8E4M3B11FNUZ, 8, 3, 11, FloatFormat::Specials::kUnsignedZero, 0x7F, 0x80, 0x80},
    {ElementType::kF8E5M2FNUZ, 8, 2, 16, FloatFormat::Specials::kUnsignedZero, 0x7F, 0x80, 0x80},
    {ElementType::kF8E4M3FNUZ, 8, 3, 8, FloatFormat::Specials::kUnsignedZero, 0x7F, 0x80, 0x80},
    {ElementType::kF4E2M1FN, 4, 1, 1, FloatFormat::Specials::kNone, 0x7, 0x7, 0x8},
};

// The format of a type, or null if it has none: f8e8m0fnu, which has no sign and no mantissa, and other types.
constexpr const FloatFormat* FloatFormatOf(ElementType type) {
  for (const FloatFormat& format : kFloatFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

// F is float or double. Assumes the default rounding mode and no flushing of subnormals.
template <typename F>
uint16_t EncodeFloat(const FloatFormat& format, F value) {
  using Bits = std::conditional_t<sizeof(F) == 8, uint64_t, uint32_t>;
  constexpr int kMantissaBits = std::numeric_limits<F>::digits - 1;
  constexpr int kBias = std::numeric_limits<F>::max_exponent - 1;
  const bool unsigned_zero = format.specials == FloatFormat::Specials::kUnsignedZero;
  const Bits all = std::bit_cast<Bits>(value);
  const uint16_t sign = (all >> (8 * sizeof(F) - 1)) << (format.bits - 1);
  if (value != value) return unsigned_zero ? format.nan : format.nan ^ sign;
  const Bits magnitude = all & (~Bits{0} >> 1);
  const auto power_of_two = [](int exponent) { return std::bit_cast<F>(Bits(exponent + kBias) << kMantissaBits); };
  Bits code = 0;
  if (magnitude < std::bit_cast<Bits>(power_of_two(1 - format.bias))) {
    // The result is subnormal. Adding a power of two whose unit in the last place equals that of the result rounds it.
    const F shifted = power_of_two(1 - format.bias - format.mantissa_bits + kMantissaBits);
    code = std::bit_cast<Bits>(std::bit_cast<F>(magnitude) + shifted) - std::bit_cast<Bits>(shifted);
  } else {
    const int drop = kMantissaBits - format.mantissa_bits;
    const Bits rounding = (Bits{1} << (drop - 1)) - 1 + ((magnitude >> drop) & 1);
    code = ((magnitude + rounding) >> drop) - (Bits(kBias - format.bias) << format.mantissa_bits);
  }
  if (code > format.max_finite) code = format.overflow;
  return unsigned_zero && (code == 0 || code == format.nan) ? code : code | sign;
}

inline float DecodeFloat(const FloatFormat& format, uint16_t bits) {
  const uint32_t sign = bits >> (format.bits - 1);
  const uint32_t code = bits & ((1u << (format.bits - 1)) - 1);
  const auto power_of_two = [](int exponent) { return std::ldexp(1.0f, exponent); };
  float magnitude = 0;
  if (code > format.max_finite ||
      (format.specials == FloatFormat::Specials::kUnsignedZero && code == 0 && sign != 0)) {
    const bool is_infinity = format.specials == FloatFormat::Specials::kIeee && code == format.overflow;
    magnitude = is_infinity ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    if (format.specials == FloatFormat::Specials::kIeee && !is_infinity) {
      magnitude = std::bit_cast<float>(0x7F800000 | code << (23 - format.mantissa_bits));  // Keeps the payload.
    }
    if (format.specials == FloatFormat::Specials::kUnsignedZero) return magnitude;
  } else if (code >> format.mantissa_bits == 0) {
    magnitude = code * power_of_two(1 - format.bias - format.mantissa_bits);
  } else {
    magnitude = std::bit_cast<float>((code << (23 - format.mantissa_bits)) + ((127 - format.bias) << 23));
  }
  return sign != 0 ? -magnitude : magnitude;
}

// bf16 has the upper half of an f32's bits. Decoding keeps the payload of a NaN.
inline uint16_t EncodeBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return ((bits >> 16) & 0x8000) | 0x7FC0;
  return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}
inline float DecodeBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The codec of a type that is known at compile time.
template <ElementType kType>
struct SmallFloat {
  static constexpr const FloatFormat& kFormat = *FloatFormatOf(kType);
  using Storage = std::conditional_t<(kFormat.bits > 8), uint16_t, uint8_t>;

  static Storage Encode(float value) {
    if constexpr (kType == ElementType::kBF16) return EncodeBf16(value);
    return EncodeFloat(kFormat, value);
  }
  static float Decode(Storage bits) {
    if constexpr (kType == ElementType::kBF16) return DecodeBf16(bits);
    return DecodeFloat(kFormat, bits);
  }
};

template <>
struct SmallFloat<ElementType::kF8E8M0FNU> {
  using Storage = uint8_t;
  static Storage Encode(float value) { return EncodeSmallFloat(ElementType::kF8E8M0FNU, value); }
  static float Decode(Storage bits) { return DecodeSmallFloat(ElementType::kF8E8M0FNU, bits); }
};

}  // namespace xlad::tensor
