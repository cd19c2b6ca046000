#include "tensor/small_float.h"

#include "base/status.h"

namespace xlad::tensor {
namespace {

// f8e8m0fnu has the powers of two 2^(code - 127), but no sign and no zero; code 0xFF is NaN. Ties are rounded up. As in
// ml_dtypes and XLA, the value is first rounded to a float. A float zero becomes NaN. A float between the two smallest
// powers is rounded up to the larger one.
uint16_t EncodePowerOfTwo(double value) {
  const auto rounded = static_cast<float>(value);
  if (!(rounded > 0) || std::isinf(rounded)) return 0xFF;
  if (rounded < 0x1p-126f) return rounded > 0x1p-127f ? 1 : 0;
  int exponent = 0;
  const float fraction = std::frexp(rounded, &exponent);  // [0.5, 1)
  return exponent - 1 + (fraction >= 0.75f ? 1 : 0) + 127;
}

const FloatFormat& CheckedFormat(ElementType type) {
  const FloatFormat* format = FloatFormatOf(type);
  XLAD_CHECK(format != nullptr) << "found " << ToString(type) << ", expected a floating type of at most 16 bits";
  return *format;
}

}  // namespace

bool IsSmallFloat(ElementType type) { return IsFloating(type) && BitWidth(type) <= 16; }

uint16_t EncodeSmallFloat(ElementType type, double value) {
  return type == ElementType::kF8E8M0FNU ? EncodePowerOfTwo(value) : EncodeFloat(CheckedFormat(type), value);
}

float DecodeSmallFloat(ElementType type, uint16_t bits) {
  if (type != ElementType::kF8E8M0FNU) return DecodeFloat(CheckedFormat(type), bits);
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, bits - 127);
}

}  // namespace xlad::tensor
