// HLO text: prints literals. A float prints as the shortest text that parses to the same bits.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hlo/text/print.h"
#include "tensor/small_float.h"

namespace xlad::hlo {
namespace {

template <typename T>
T Load(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  return value;
}

// Appends "nan" or "-nan", with the bits of the mantissa if they differ from those of the default quiet NaN.
void AppendNan(bool negative, uint64_t mantissa, uint64_t plain, std::string* out) {
  out->append(negative ? "-nan" : "nan");
  if (mantissa != plain) absl::StrAppendFormat(out, "(0x%x)", mantissa);
}

template <typename T, typename Bits>
void AppendIeee(ElementType, const std::byte* element, std::string* out) {
  const T value = Load<T>(element);
  if (std::isnan(value)) {
    constexpr int kMantissaBits = std::numeric_limits<T>::digits - 1;
    const Bits mantissa = Load<Bits>(element) & ((Bits{1} << kMantissaBits) - 1);
    return AppendNan(std::signbit(value), mantissa, Bits{1} << (kMantissaBits - 1), out);
  }
  // Other parsers read "-0" as an integer, without the sign.
  if (value == 0 && std::signbit(value)) return absl::StrAppend(out, "-0.0");
  char buffer[64];
  const auto [stop, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::general);
  out->append(buffer, stop);
}

void AppendSmallFloat(ElementType type, const std::byte* element, std::string* out) {
  const uint16_t bits =
      tensor::ByteWidth(type) == 1 ? Load<uint8_t>(element) : Load<uint16_t>(element);
  const float value = tensor::DecodeSmallFloat(type, bits);
  if (std::isnan(value)) {
    const uint16_t infinity = tensor::EncodeSmallFloat(type, std::numeric_limits<double>::infinity());
    if (!std::isinf(tensor::DecodeSmallFloat(type, infinity))) {
      // The type has only one NaN, or only one NaN of each sign.
      const uint16_t negative = tensor::EncodeSmallFloat(type, -std::numeric_limits<double>::quiet_NaN());
      const uint16_t positive = tensor::EncodeSmallFloat(type, std::numeric_limits<double>::quiet_NaN());
      return absl::StrAppend(out, bits == negative && negative != positive ? "-nan" : "nan");
    }
    const uint16_t mantissa = (infinity & (~infinity + 1)) - 1;
    const uint16_t plain = tensor::EncodeSmallFloat(type, std::numeric_limits<double>::quiet_NaN()) & mantissa;
    const uint16_t sign = 1 << (tensor::BitWidth(type) - 1);
    return AppendNan((bits & sign) != 0, bits & mantissa, plain, out);
  }
  if (value == 0 && std::signbit(value)) return absl::StrAppend(out, "-0.0");
  char buffer[64];
  for (int precision = 1;; ++precision) {
    const auto [stop, error] = std::to_chars(buffer, buffer + sizeof(buffer), static_cast<double>(value),
                                             std::chars_format::general, precision);
    double back = 0;
    std::from_chars(buffer, stop, back);
    constexpr int kMaxDigits = 9;
    if (tensor::EncodeSmallFloat(type, back) == bits || std::isinf(value) || precision == kMaxDigits) {
      const auto [end, bad] = std::to_chars(buffer, buffer + sizeof(buffer), back, std::chars_format::general);
      out->append(buffer, end);
      return;
    }
  }
}

template <typename T>
void AppendInt(ElementType, const std::byte* element, std::string* out) {
  absl::StrAppend(out, Load<T>(element));
}
template <typename T>
void AppendByte(ElementType, const std::byte* element, std::string* out) {
  absl::StrAppend(out, static_cast<int>(Load<T>(element)));
}
void AppendPred(ElementType, const std::byte* element, std::string* out) {
  out->append(Load<uint8_t>(element) != 0 ? "true" : "false");
}
template <typename T, typename Bits>
void AppendComplex(ElementType type, const std::byte* element, std::string* out) {
  out->push_back('(');
  AppendIeee<T, Bits>(type, element, out);
  out->append(", ");
  AppendIeee<T, Bits>(type, element + sizeof(T), out);
  out->push_back(')');
}

using ElementPrinter = void (*)(ElementType, const std::byte*, std::string*);

ElementPrinter PrinterOf(ElementType type) {
  switch (type) {
    case ElementType::kPred: return AppendPred;
    case ElementType::kS1: case ElementType::kS2: case ElementType::kS4: case ElementType::kS8:
      return AppendByte<int8_t>;
    case ElementType::kU1: case ElementType::kU2: case ElementType::kU4: case ElementType::kU8:
      return AppendByte<uint8_t>;
    case ElementType::kS16: return AppendInt<int16_t>;
    case ElementType::kS32: return AppendInt<int32_t>;
    case ElementType::kS64: return AppendInt<int64_t>;
    case ElementType::kU16: return AppendInt<uint16_t>;
    case ElementType::kU32: return AppendInt<uint32_t>;
    case ElementType::kU64: return AppendInt<uint64_t>;
    case ElementType::kF32: return AppendIeee<float, uint32_t>;
    case ElementType::kF64: return AppendIeee<double, uint64_t>;
    case ElementType::kC64: return AppendComplex<float, uint32_t>;
    case ElementType::kC128: return AppendComplex<double, uint64_t>;
    default: return AppendSmallFloat;
  }
}

// Appends "{{1, 2}, {3, 4}}".
void AppendDense(const tensor::Array& array, std::string* out) {
  const Dims& dims = array.shape().dims;
  const ElementPrinter print = PrinterOf(array.shape().type);
  const int64_t width = tensor::ByteWidth(array.shape().type);
  const std::byte* element = array.bytes().data();
  Dims index(dims.size(), 0);
  out->append(dims.size(), '{');
  while (true) {
    print(array.shape().type, element, out);
    element += width;
    if (element == array.bytes().data() + array.bytes().size()) break;
    size_t closed = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
      ++closed;
    }
    out->append(closed, '}');
    out->append(", ");
    out->append(closed, '{');
  }
  out->append(dims.size(), '}');
}

// Appends braces down to the first empty dimension, as in "{{}, {}}", or "{...}" if the text would be
// longer than 256 characters.
void AppendEmpty(absl::Span<const int64_t> dims, std::string* out) {
  constexpr size_t kMaxText = 256;
  // Builds the text from the innermost level outward. Each level repeats the one inside it.
  std::string text = "{}";
  const size_t empty = std::find(dims.begin(), dims.end(), 0) - dims.begin();
  for (size_t d = empty; d-- > 0 && text.size() <= kMaxText;) {
    const int64_t repeat = std::min<int64_t>(dims[d], kMaxText);
    const std::vector<absl::string_view> inner(repeat, text);
    text = absl::StrCat("{", absl::StrJoin(inner, ", "), "}");
  }
  out->append(text.size() <= kMaxText ? text : "{...}");
}

}  // namespace

void AppendFloat(float value, std::string* out) {
  AppendIeee<float, uint32_t>(ElementType::kF32, reinterpret_cast<const std::byte*>(&value), out);
}

void AppendLiteral(const Literal& literal, std::string* out) {
  if (literal.is_tuple) {
    out->push_back('(');
    for (size_t i = 0; i < literal.tuple.size(); ++i) {
      if (i > 0) out->append(", ");
      AppendLiteral(literal.tuple[i], out);
    }
    out->push_back(')');
  } else if (literal.elided) {
    out->append("{...}");
  } else if (literal.array.elements() == 0 && literal.array.shape().ndim() > 0) {
    AppendEmpty(literal.array.shape().dims, out);
  } else {
    AppendDense(literal.array, out);
  }
}

}  // namespace xlad::hlo
