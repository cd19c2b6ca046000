// HLO text: literals of every element type.
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/charconv.h"
#include "absl/strings/str_cat.h"
#include "hlo/text/parse.h"
#include "tensor/small_float.h"
#include "tensor/sub_byte.h"

namespace xlad::hlo {
namespace {

bool EndsNumber(Lexer& lexer) { return !IsWord(lexer.rest().substr(0, 1)); }

template <typename T>
bool ParseInt(Lexer& lexer, ElementType type, int64_t lowest, uint64_t highest, T* value) {
  const char* const at = lexer.Here();
  const char* const end = at + lexer.rest().size();
  const auto fail = [&] {
    return lexer.FailAt(at, absl::StrCat("an integer of ", tensor::ToString(type), " (", lowest, " to ", highest,
                                         ")"));
  };
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  Wide wide = 0;
  std::from_chars_result read = std::from_chars(at, end, wide);
  int64_t negative = 0;
  if (std::is_same_v<T, uint64_t> && at < end && *at == '-') {  // XLA reads -1 as 2^64 - 1.
    read = std::from_chars(at, end, negative);
    wide = static_cast<Wide>(negative);
  }
  const auto [stop, error] = read;
  if (error != std::errc()) return fail();
  if (std::cmp_less(wide, lowest) || std::cmp_greater(wide, highest)) return fail();
  lexer.Rewind(stop);
  if (!EndsNumber(lexer)) return fail();
  *value = static_cast<T>(wide);
  return true;
}

template <typename T>
bool ParseIntElement(Lexer& lexer, ElementType type, std::byte* out) {
  const int bits = tensor::BitWidth(type);
  T value = 0;
  const bool is_signed = std::is_signed_v<T>;
  const uint64_t highest = tensor::LowBits(-1, bits) >> (is_signed ? 1 : 0);
  const int64_t lowest = is_signed ? ~highest : 0;
  if (!ParseInt<T>(lexer, type, lowest, highest, &value)) return false;
  std::memcpy(out, &value, sizeof(value));
  return true;
}

bool ParsePredElement(Lexer& lexer, ElementType, std::byte* out) {
  const char* const at = lexer.Here();
  const absl::string_view word = lexer.Word();
  const bool yes = word == "true" || word == "1";
  *out = static_cast<std::byte>(yes ? 1 : 0);
  return yes || word == "false" || word == "0" || lexer.FailAt(at, "true or false");
}

// A special value: "nan", "-nan(0x7)" or "inf". `special` stays false if the text is a number.
struct Special {
  bool special = false, negative = false, nan = false;
  uint64_t payload = 0;  // 0 means the default quiet NaN of the type.
};

bool ParseSpecial(Lexer& lexer, Special* result) {
  const char* const at = lexer.Here();
  const absl::string_view rest = lexer.rest();
  result->negative = !rest.empty() && rest.front() == '-';
  const absl::string_view word = rest.substr(result->negative ? 1 : 0, 3);
  result->nan = word == "nan";
  result->special = result->nan || word == "inf";
  if (!result->special) return true;
  lexer.Rewind(at + (result->negative ? 4 : 3));
  if (result->nan && lexer.PeekRaw() == '(') {
    const absl::string_view digits = lexer.rest().substr(1, 18);
    const char* const first = digits.data() + 2;
    if (digits.substr(0, 2) != "0x") return lexer.FailAt(at, "a NaN's payload, as in nan(0x7)");
    const auto [stop, error] = std::from_chars(first, digits.data() + digits.size(), result->payload, 16);
    if (error != std::errc()) return lexer.FailAt(at, "a NaN's payload, as in nan(0x7)");
    lexer.Rewind(stop);
    return lexer.Expect(')');
  }
  return EndsNumber(lexer) || lexer.FailAt(at, "a number");
}

// Parses a value of f32 or f64.
template <typename T, typename Bits>
bool ParseIeee(Lexer& lexer, ElementType type, std::byte* out) {
  constexpr int kMantissaBits = std::numeric_limits<T>::digits - 1;
  const char* const at = lexer.Here();
  Special special;
  if (!ParseSpecial(lexer, &special)) return false;
  T value = 0;
  if (special.special) {
    value = special.nan ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity();
    Bits bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    if (special.payload != 0) {
      const Bits mask = (Bits{1} << kMantissaBits) - 1;
      if (special.payload > mask) return lexer.FailAt(at, absl::StrCat("a NaN that fits ", tensor::ToString(type)));
      bits = static_cast<Bits>((bits & ~mask) | special.payload);
    }
    if (special.negative) bits |= Bits{1} << (8 * sizeof(Bits) - 1);
    std::memcpy(out, &bits, sizeof(bits));
    return true;
  }
  const char* const end = at + lexer.rest().size();
  const auto [stop, error] = std::from_chars(at, end, value);
  // If the value is out of range, only absl's function distinguishes underflow, which rounds, from overflow, which is
  // an error.
  const bool out_of_range = error == std::errc::result_out_of_range;
  if (out_of_range) absl::from_chars(at, end, value);
  if ((error != std::errc() && !out_of_range) || (out_of_range && std::fabs(value) > 1)) {
    return lexer.FailAt(at, absl::StrCat("a number of ", tensor::ToString(type)));
  }
  lexer.Rewind(stop);
  if (!EndsNumber(lexer)) return lexer.FailAt(at, absl::StrCat("a number of ", tensor::ToString(type)));
  std::memcpy(out, &value, sizeof(value));
  return true;
}

bool ParseSmallFloat(Lexer& lexer, ElementType type, std::byte* out) {
  const char* const at = lexer.Here();
  const auto fail = [&] { return lexer.FailAt(at, absl::StrCat("a number of ", tensor::ToString(type))); };
  Special special;
  if (!ParseSpecial(lexer, &special)) return false;
  const int bytes = tensor::ByteWidth(type);
  uint16_t bits = 0;
  if (special.nan) {
    const double nan = std::copysign(std::numeric_limits<double>::quiet_NaN(), special.negative ? -1.0 : 1.0);
    bits = tensor::EncodeSmallFloat(type, nan);
    if (!std::isnan(tensor::DecodeSmallFloat(type, bits))) return fail();
    if (special.payload != 0) {
      const uint16_t infinity = tensor::EncodeSmallFloat(type, std::numeric_limits<double>::infinity());
      const uint16_t mantissa = (infinity & (~infinity + 1)) - 1;  // The bits below the exponent.
      if (!std::isinf(tensor::DecodeSmallFloat(type, infinity)) || special.payload > mantissa) return fail();
      bits = (bits & ~mantissa) | special.payload;
    }
  } else {
    double value = std::numeric_limits<double>::infinity() * (special.negative ? -1 : 1);
    if (!special.special) {
      std::byte wide[sizeof(double)];
      if (!ParseIeee<double, uint64_t>(lexer, ElementType::kF64, wide)) return false;
      std::memcpy(&value, wide, sizeof(value));
    }
    bits = tensor::EncodeSmallFloat(type, value);
    const float back = tensor::DecodeSmallFloat(type, bits);
    if (std::isinf(value) ? back != static_cast<float>(value) : !std::isfinite(back)) return fail();
  }
  std::memcpy(out, &bits, bytes);
  return true;
}

template <typename T, typename Bits>
bool ParseComplex(Lexer& lexer, ElementType, std::byte* out) {
  const ElementType part = sizeof(T) == 4 ? ElementType::kF32 : ElementType::kF64;
  std::memset(out, 0, 2 * sizeof(T));
  if (!lexer.Accept('(')) return ParseIeee<T, Bits>(lexer, part, out);
  return ParseIeee<T, Bits>(lexer, part, out) && lexer.Expect(',') &&
         ParseIeee<T, Bits>(lexer, part, out + sizeof(T)) && lexer.Expect(')');
}

using ElementParser = bool (*)(Lexer&, ElementType, std::byte*);

ElementParser ParserOf(ElementType type) {
  switch (type) {
    case ElementType::kPred: return ParsePredElement;
    case ElementType::kS1: case ElementType::kS2: case ElementType::kS4: case ElementType::kS8:
      return ParseIntElement<int8_t>;
    case ElementType::kS16: return ParseIntElement<int16_t>;
    case ElementType::kS32: return ParseIntElement<int32_t>;
    case ElementType::kS64: return ParseIntElement<int64_t>;
    case ElementType::kU1: case ElementType::kU2: case ElementType::kU4: case ElementType::kU8:
      return ParseIntElement<uint8_t>;
    case ElementType::kU16: return ParseIntElement<uint16_t>;
    case ElementType::kU32: return ParseIntElement<uint32_t>;
    case ElementType::kU64: return ParseIntElement<uint64_t>;
    case ElementType::kF32: return ParseIeee<float, uint32_t>;
    case ElementType::kF64: return ParseIeee<double, uint64_t>;
    case ElementType::kC64: return ParseComplex<float, uint32_t>;
    case ElementType::kC128: return ParseComplex<double, uint64_t>;
    default: return ParseSmallFloat;
  }
}

// Parses the values of an array in nested braces.
class DenseParser {
 public:
  DenseParser(Lexer& lexer, const tensor::Shape& shape, std::byte* out)
      : lexer_(lexer), shape_(shape), parse_(ParserOf(shape.type)), width_(tensor::ByteWidth(shape.type)), out_(out) {}

  bool Parse(size_t dimension) {
    if (dimension == shape_.dims.size()) {
      if (!parse_(lexer_, shape_.type, out_)) return false;
      out_ += width_;
      return true;
    }
    Lexer::Depth depth(lexer_);
    if (!depth.Check() || !lexer_.Expect('{')) return false;
    for (int64_t i = 0; i < shape_.dims[dimension]; ++i) {
      if (i > 0 && !lexer_.Expect(',')) return false;
      if (!Parse(dimension + 1)) return false;
    }
    return lexer_.Expect('}');
  }

 private:
  Lexer& lexer_;
  const tensor::Shape& shape_;
  const ElementParser parse_;
  const int64_t width_;
  std::byte* out_;
};

// Parses the nested braces of an array without elements.
bool ParseEmpty(Lexer& lexer) {
  if (!lexer.Expect('{')) return false;
  if (lexer.Accept("...")) return lexer.Expect('}');
  for (int64_t open = 1; open > 0;) {
    if (lexer.Accept('{')) {
      ++open;
    } else if (lexer.Accept('}')) {
      --open;
    } else if (!lexer.Accept(',')) {
      return lexer.FailExpected("braces only, because the shape has no elements");
    }
  }
  return true;
}

// Reserves the memory of a constant whose elements are not all in the text. Returns false if it exceeds the limit.
bool TakeBytes(const tensor::Shape& shape, int64_t* elided_bytes) {
  if (shape.bytes() > *elided_bytes) return false;
  *elided_bytes -= shape.bytes();
  return true;
}

bool ParseArray(Lexer& lexer, const tensor::Shape& shape, int64_t* elided_bytes, Literal* literal) {
  const char* const at = lexer.Here();
  const int64_t elements = shape.elements();
  if (elements == 0 && !shape.dims.empty()) {
    literal->array = tensor::Array(shape);
    return ParseEmpty(lexer);
  }
  if (lexer.Accept("{...}")) {
    literal->array = TakeBytes(shape, elided_bytes) ? tensor::Array(shape) : tensor::Array(shape, {});
    literal->elided = true;
    return true;
  }
  if (!shape.dims.empty() && lexer.Peek() != '{') {
    // Like XLA, reads a number without braces as the first element; the other elements are zeros.
    if (!TakeBytes(shape, elided_bytes)) {
      return lexer.Fail(at, absl::StrCat("found constants with a single value and more than 256 MiB in total, the ",
                                         "last one ", shape.ToString(), ", expected all of their values"));
    }
    literal->array = tensor::Array(shape);
    return ParserOf(shape.type)(lexer, shape.type, literal->array.bytes().data());
  }
  // Each value has at least a digit and a comma. Refuse sizes that the text cannot contain before allocating memory.
  if (elements > std::ssize(lexer.rest()) / 2 + 1) {
    return lexer.Fail(at, absl::StrCat("found too few values, expected the ", elements, " of ", shape.ToString()));
  }
  literal->array = tensor::Array(shape);
  return DenseParser(lexer, shape, literal->array.bytes().data()).Parse(0);
}

}  // namespace

bool ParseLiteral(Lexer& lexer, const Shape& shape, int64_t* elided_bytes, Literal* literal) {
  if (shape.is_array()) return ParseArray(lexer, shape.array(), elided_bytes, literal);
  if (!shape.is_tuple()) return lexer.FailExpected("no value, because the shape is neither an array nor a tuple");
  Lexer::Depth depth(lexer);
  if (!depth.Check()) return false;
  *literal = Literal::Tuple({});
  // A dump may omit all values of a tuple.
  const bool elided = lexer.Accept("{...}");
  if (!elided && !lexer.Expect('(')) return false;
  for (size_t i = 0; i < shape.tuple().size(); ++i) {
    literal->tuple.emplace_back();
    if (elided) {
      Lexer dots("{...}");
      if (!ParseLiteral(dots, shape.tuple()[i], elided_bytes, &literal->tuple.back())) {
        return lexer.FailExpected("an array or a tuple of arrays");
      }
      continue;
    }
    if (i > 0 && !lexer.Expect(',')) return false;
    Shape repeated;  // Some printers repeat the shape of the element.
    if (lexer.Peek() != '(' && AtShape(lexer) && !ParseShape(lexer, &repeated)) return false;
    if (!ParseLiteral(lexer, shape.tuple()[i], elided_bytes, &literal->tuple.back())) return false;
  }
  return elided || lexer.Expect(')');
}

}  // namespace xlad::hlo
