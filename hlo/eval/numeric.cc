#include "hlo/eval/numeric.h"

#include <array>

namespace xlad::hlo::eval {
namespace {

// The values of all encodings of a format of at most 8 bits.
std::array<float, 256> DecodeTable(ElementType type) {
  std::array<float, 256> table;
  for (int code = 0; code < 256; ++code) table[code] = DecodeSmallFloat(type, code);
  return table;
}

void WidenFloats(const Value& value, absl::Span<float> out) {
  const ElementType type = value.type();
  if (type == ElementType::kBF16) {
    const auto in = value.values<uint16_t>();
    for (const int64_t i : tensor::Indices(in)) out[i] = DecodeBf16(in[i]);
  } else if (type == ElementType::kF16) {
    const auto in = value.values<uint16_t>();
    for (const int64_t i : tensor::Indices(in)) out[i] = tensor::SmallFloat<ElementType::kF16>::Decode(in[i]);
  } else {
    const std::array<float, 256> table = DecodeTable(type);
    const auto in = value.values<uint8_t>();
    for (const int64_t i : tensor::Indices(in)) out[i] = table[in[i]];
  }
}

}  // namespace

ElementType CarrierOf(ElementType type) {
  if (IsSmallFloat(type)) return ElementType::kF32;
  if (tensor::BitWidth(type) < 8) return tensor::IsSigned(type) ? ElementType::kS8 : ElementType::kU8;
  return type;
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
    for (const int64_t i : tensor::Indices(floats)) out[i] = EncodeBf16(floats[i]);
  } else if (shape.type == ElementType::kF16) {
    const auto out = array.values<uint16_t>();
    for (const int64_t i : tensor::Indices(floats)) out[i] = tensor::SmallFloat<ElementType::kF16>::Encode(floats[i]);
  } else {
    const auto out = array.values<uint8_t>();
    for (const int64_t i : tensor::Indices(floats)) out[i] = EncodeSmallFloat(shape.type, floats[i]);
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
  for (const int64_t i : tensor::Indices(in)) out[i] = WrapSubByte(type, in[i]);
  return array;
}

double RoundToOdd(uint64_t value) {
  // Keeps 53 bits, and sets the last one if a dropped bit is set.
  const int drop = std::max<int>(0, std::bit_width(value) - 53);
  const uint64_t kept = value >> drop;
  const bool lost = (kept << drop) != value;
  return std::ldexp(kept | (lost ? 1u : 0u), drop);
}

double RoundToOdd(int64_t value) {
  const uint64_t bits = value, magnitude = value < 0 ? 0 - bits : bits;
  return value < 0 ? -RoundToOdd(magnitude) : RoundToOdd(magnitude);
}

}  // namespace xlad::hlo::eval
