#include "tensor/small_float.h"

#include <cmath>
#include <limits>

#include "base/status.h"

namespace xlad::tensor {
namespace {

enum class Specials { kIeee, kNanOnly, kUnsignedZero, kNone };

// How a floating format of at most 16 bits lays out its numbers. `max_finite` and `overflow` are magnitudes.
struct FloatFormat {
  ElementType type;
  int bits, mantissa_bits, bias;
  Specials specials;
  uint16_t max_finite, overflow, nan;
};

constexpr FloatFormat kFormats[] = {
    {ElementType::kF16, 16, 10, 15, Specials::kIeee, 0x7BFF, 0x7C00, 0x7E00},
    {ElementType::kBF16, 16, 7, 127, Specials::kIeee, 0x7F7F, 0x7F80, 0x7FC0},
    {ElementType::kF8E5M2, 8, 2, 15, Specials::kIeee, 0x7B, 0x7C, 0x7E},
    {ElementType::kF8E4M3, 8, 3, 7, Specials::kIeee, 0x77, 0x78, 0x7C},
    {ElementType::kF8E3M4, 8, 4, 3, Specials::kIeee, 0x6F, 0x70, 0x78},
    {ElementType::kF8E4M3FN, 8, 3, 7, Specials::kNanOnly, 0x7E, 0x7F, 0x7F},
    {ElementType::kF8E4M3B11FNUZ, 8, 3, 11, Specials::kUnsignedZero, 0x7F, 0x80, 0x80},
    {ElementType::kF8E5M2FNUZ, 8, 2, 16, Specials::kUnsignedZero, 0x7F, 0x80, 0x80},
    {ElementType::kF8E4M3FNUZ, 8, 3, 8, Specials::kUnsignedZero, 0x7F, 0x80, 0x80},
    {ElementType::kF4E2M1FN, 4, 1, 1, Specials::kNone, 0x7, 0x7, 0x8},
};

const FloatFormat& FormatOf(ElementType type) {
  for (const FloatFormat& format : kFormats) {
    if (format.type == type) return format;
  }
  XLAD_CHECK(false) << ToString(type) << " is no small float";
  return kFormats[0];
}

// f8e8m0fnu: a power of two, 2^(code - 127); no sign, no zero; 0xFF is NaN. Ties go up. As in ml_dtypes and XLA the
// value is a float first: what that rounds to zero is NaN, and what lies between the two smallest codes gets the
// larger one.
uint16_t EncodePowerOfTwo(double value) {
  const auto rounded = static_cast<float>(value);
  if (!(rounded > 0) || std::isinf(rounded)) return 0xFF;
  if (rounded < 0x1p-126f) return rounded > 0x1p-127f ? 1 : 0;
  int exponent = 0;
  const float fraction = std::frexp(rounded, &exponent);  // [0.5, 1)
  return static_cast<uint16_t>(exponent - 1 + (fraction >= 0.75f ? 1 : 0) + 127);
}

uint16_t Encode(const FloatFormat& format, double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 1u << (format.bits - 1) : 0u);
  if (std::isnan(value)) {
    if (format.specials == Specials::kUnsignedZero) return format.nan;
    return format.nan ^ sign;
  }
  const double magnitude = std::fabs(value);
  uint32_t code = format.overflow;
  if (std::isfinite(magnitude)) {
    // The exponent field counts from 1 for normal numbers; a subnormal has the smallest normal's quantum.
    const int exponent = magnitude == 0 ? 1 - format.bias : std::max(std::ilogb(magnitude), 1 - format.bias);
    const double quanta = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
    const int64_t exact = (int64_t{exponent + format.bias - 1} << format.mantissa_bits) + static_cast<int64_t>(quanta);
    if (exact <= format.max_finite) code = static_cast<uint32_t>(exact);
  }
  if (format.specials == Specials::kUnsignedZero && (code == 0 || code == format.nan)) {
    return static_cast<uint16_t>(code);
  }
  return static_cast<uint16_t>(code | sign);
}

float Decode(const FloatFormat& format, uint16_t bits) {
  const uint32_t sign_bit = 1u << (format.bits - 1);
  const uint32_t code = bits & (sign_bit - 1);
  const bool negative = (bits & sign_bit) != 0;
  if (format.specials == Specials::kUnsignedZero && code == 0 && negative) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (code > format.max_finite) {
    const float special = format.specials == Specials::kIeee && code == format.overflow
                              ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
    return negative ? -special : special;
  }
  const uint32_t field = code >> format.mantissa_bits;
  const uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const uint32_t quanta = field == 0 ? mantissa : mantissa | (1u << format.mantissa_bits);
  const int exponent = static_cast<int>(field == 0 ? 1 : field) - format.bias - format.mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(quanta), exponent);
  return negative ? -magnitude : magnitude;
}

}  // namespace

uint16_t EncodeSmallFloat(ElementType type, double value) {
  return type == ElementType::kF8E8M0FNU ? EncodePowerOfTwo(value) : Encode(FormatOf(type), value);
}

float DecodeSmallFloat(ElementType type, uint16_t bits) {
  if (type != ElementType::kF8E8M0FNU) return Decode(FormatOf(type), bits);
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

}  // namespace xlad::tensor
