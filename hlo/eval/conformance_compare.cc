// Comparison of arrays with a tolerance.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "hlo/eval/conformance.h"
#include "tensor/small_float.h"
#include "tensor/sub_byte.h"

namespace xlad::hlo {
namespace {

using tensor::ElementType;

// A real number, with its encoding as sign and magnitude for distances in ULP.
struct Number {
  double value = 0;
  uint64_t magnitude = 0;
  bool negative = false;
};

template <typename T>
T ReadAt(const tensor::Array& array, int64_t i) {
  T value;
  std::memcpy(&value, array.bytes().data() + i * sizeof(T), sizeof(T));
  return value;
}

Number FloatNumber(double value, uint64_t bits, int width) {
  const uint64_t sign = uint64_t{1} << (width - 1);
  return {value, bits & (sign - 1), (bits & sign) != 0};
}

Number IntNumber(int64_t value) {
  const uint64_t bits = value;
  return {1.0 * value, value < 0 ? 0 - bits : bits, value < 0};
}

// Number `i` of the array. A complex element has two numbers.
Number NumberAt(const tensor::Array& array, int64_t i) {
  switch (const ElementType type = array.shape().type) {
    case ElementType::kF32:
    case ElementType::kC64:
      return FloatNumber(ReadAt<float>(array, i), ReadAt<uint32_t>(array, i), 32);
    case ElementType::kF64:
    case ElementType::kC128:
      return FloatNumber(ReadAt<double>(array, i), ReadAt<uint64_t>(array, i), 64);
    default: {
      const int width = tensor::BitWidth(type);
      uint64_t bits = 0;  // The element, little-endian.
      std::memcpy(&bits, array.bytes().data() + i * tensor::ByteWidth(type), tensor::ByteWidth(type));
      if (tensor::IsSigned(type)) return IntNumber(tensor::SignExtend(bits, 8 * tensor::ByteWidth(type)));
      if (!tensor::IsFloating(type)) return {1.0 * bits, bits, false};
      const float value = tensor::DecodeSmallFloat(type, bits);
      if (type == ElementType::kF8E8M0FNU) return {value, bits, false};
      return FloatNumber(value, bits, width);
    }
  }
}

// Replaces a denormal by zero.
void Flush(ElementType type, Number* number) {
  const bool wide = type == ElementType::kF64 || type == ElementType::kC128;
  double smallest = wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  if (type == ElementType::kF16) smallest = 0x1p-14;
  if (!(std::fabs(number->value) < smallest)) return;
  number->value = number->negative ? -0.0 : 0.0;
  number->magnitude = 0;
}

bool SameValue(const Number& a, const Number& e) {
  if (std::isnan(a.value) || std::isnan(e.value)) return std::isnan(a.value) && std::isnan(e.value);
  return a.value == e.value && ((a.magnitude == e.magnitude && a.negative == e.negative) || a.value == 0);
}

bool Passes(const Number& a, const Number& e, const Tolerance& tolerance) {
  if (tolerance.signed_zero && a.value == 0 && e.value == 0) return a.negative == e.negative;
  if (SameValue(a, e)) return true;
  if (!std::isfinite(a.value) || !std::isfinite(e.value)) return false;
  switch (tolerance.kind) {
    case Tolerance::Kind::kEqual:
      return false;
    case Tolerance::Kind::kUlp: {
      const uint64_t distance = a.negative == e.negative
                                    ? std::max(a.magnitude, e.magnitude) - std::min(a.magnitude, e.magnitude)
                                    : a.magnitude + e.magnitude;
      return distance <= tolerance.max_ulp;
    }
    case Tolerance::Kind::kAbsolute:
      return std::fabs(a.value - e.value) <= tolerance.absolute;
    case Tolerance::Kind::kClose:
      return std::fabs(a.value - e.value) <= tolerance.absolute + tolerance.relative * std::fabs(e.value);
  }
  return false;
}

std::string Show(const Number& number) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", number.value);
  return text;
}

}  // namespace

Difference Compare(const tensor::Array& actual, const tensor::Array& expected, const Tolerance& tolerance) {
  XLAD_CHECK(actual.shape() == expected.shape()) << actual.shape().ToString() << " " << expected.shape().ToString();
  const int64_t parts = tensor::IsComplex(actual.shape().type) ? 2 : 1;
  const int64_t numbers = actual.elements() * parts;
  const ElementType type = actual.shape().type;
  Difference difference;
  for (int64_t i = 0; i < numbers; ++i) {
    Number a = NumberAt(actual, i), e = NumberAt(expected, i);
    if (tolerance.flush_denormals && tensor::BitWidth(type) >= 16 && !tensor::IsInteger(type)) {
      Flush(type, &a);
      Flush(type, &e);
    }
    if (Passes(a, e, tolerance)) continue;
    if (difference.mismatches++ == 0) {
      difference.first = i / parts;
      difference.actual = Show(a);
      difference.expected = Show(e);
    }
    if (std::isfinite(a.value) && std::isfinite(e.value)) {
      difference.max_absolute = std::max(difference.max_absolute, std::fabs(a.value - e.value));
    } else {
      ++difference.non_finite;
    }
  }
  return difference;
}

}  // namespace xlad::hlo
