// Floating-point formats of at most 16 bits: their values as bits, and back.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/element_type.h"

namespace xlad::tensor {

// Rounds to a floating type of at most 16 bits, to nearest even, with that format's own rules for overflow and NaN
// (those of the ml_dtypes package): the bits.
uint16_t EncodeSmallFloat(ElementType type, double value);
float DecodeSmallFloat(ElementType type, uint16_t bits);
inline bool IsSmallFloat(ElementType type) {
  return IsFloating(type) && type != ElementType::kF32 && type != ElementType::kF64;
}

// The same for bf16, short because programs have much of it.
inline uint16_t EncodeBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(((bits >> 16) & 0x8000) | 0x7FC0);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
inline float DecodeBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace xlad::tensor
