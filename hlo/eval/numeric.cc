#include "hlo/eval/numeric.h"

#include <array>

namespace xlad::hlo::eval {
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
  XLAD_CHECK(false) << tensor::ToString(type) << " is no small float";
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

// All values of a format with at most 8 bits.
std::array<float, 256> DecodeTable(ElementType type) {
  std::array<float, 256> table;
  for (int code = 0; code < 256; ++code) table[code] = DecodeSmallFloat(type, static_cast<uint16_t>(code));
  return table;
}

void WidenFloats(const Value& value, absl::Span<float> out) {
  const ElementType type = value.type();
  if (type == ElementType::kBF16) {
    const auto in = value.values<uint16_t>();
    for (size_t i = 0; i < in.size(); ++i) out[i] = DecodeBf16(in[i]);
  } else if (type == ElementType::kF16) {
    const auto in = value.values<uint16_t>();
    for (size_t i = 0; i < in.size(); ++i) out[i] = DecodeSmallFloat(type, in[i]);
  } else {
    const std::array<float, 256> table = DecodeTable(type);
    const auto in = value.values<uint8_t>();
    for (size_t i = 0; i < in.size(); ++i) out[i] = table[in[i]];
  }
}

}  // namespace

ElementType CarrierOf(ElementType type) {
  if (IsSmallFloat(type)) return ElementType::kF32;
  if (tensor::BitWidth(type) < 8) return tensor::IsSigned(type) ? ElementType::kS8 : ElementType::kU8;
  return type;
}

uint16_t EncodeSmallFloat(ElementType type, double value) {
  return type == ElementType::kF8E8M0FNU ? EncodePowerOfTwo(value) : Encode(FormatOf(type), value);
}

float DecodeSmallFloat(ElementType type, uint16_t bits) {
  if (type != ElementType::kF8E8M0FNU) return Decode(FormatOf(type), bits);
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

int8_t WrapSubByte(ElementType type, int8_t value) {
  const int shift = 8 - tensor::BitWidth(type);
  const auto high = static_cast<uint8_t>(static_cast<uint8_t>(value) << shift);
  return tensor::IsSigned(type) ? static_cast<int8_t>(static_cast<int8_t>(high) >> shift)
                                : static_cast<int8_t>(high >> shift);
}

Value Widen(const Value& value) {
  const ElementType carrier = CarrierOf(value.type());
  if (carrier == value.type()) return value;
  if (carrier != ElementType::kF32) return value.WithShape({carrier, value.dims()});
  Array array({carrier, value.dims()});
  WidenFloats(value, array.values<float>());
  return Value(std::move(array));
}

Array NarrowFloats(absl::Span<const float> floats, const tensor::Shape& shape) {
  Array array(shape);
  if (shape.type == ElementType::kBF16) {
    const auto out = array.values<uint16_t>();
    for (size_t i = 0; i < floats.size(); ++i) out[i] = EncodeBf16(floats[i]);
  } else if (shape.type == ElementType::kF16) {
    const auto out = array.values<uint16_t>();
    for (size_t i = 0; i < floats.size(); ++i) out[i] = EncodeSmallFloat(shape.type, floats[i]);
  } else {
    const auto out = array.values<uint8_t>();
    for (size_t i = 0; i < floats.size(); ++i) {
      out[i] = static_cast<uint8_t>(EncodeSmallFloat(shape.type, floats[i]));
    }
  }
  return array;
}

Array Narrow(Array carrier, ElementType type) {
  const tensor::Shape shape{type, carrier.shape().dims};
  if (carrier.shape().type == type) return carrier;
  if (IsSmallFloat(type)) return NarrowFloats(carrier.values<float>(), shape);
  Array array(shape);
  const auto in = carrier.values<int8_t>();
  const auto out = array.values<int8_t>();
  for (size_t i = 0; i < in.size(); ++i) out[i] = WrapSubByte(type, in[i]);
  return array;
}

double ToDoubleForRounding(uint64_t value) {
  // 53 bits of mantissa, the last one sticky: a later rounding to fewer bits then cannot round twice.
  const int drop = std::max(0, static_cast<int>(std::bit_width(value)) - 53);
  const uint64_t kept = value >> drop;
  const bool lost = (kept << drop) != value;
  return std::ldexp(static_cast<double>(kept | (lost ? 1u : 0u)), drop);
}

double ToDoubleForRounding(int64_t value) {
  const auto magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return value < 0 ? -ToDoubleForRounding(magnitude) : ToDoubleForRounding(magnitude);
}

}  // namespace xlad::hlo::eval
