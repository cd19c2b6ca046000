#include "hlo/eval/numeric.h"

#include <array>

namespace xlad::hlo::eval {
namespace {

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
