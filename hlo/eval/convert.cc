// Conversions between element types.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "hlo/eval/numeric.h"
#include "hlo/eval/reducer.h"

namespace xlad::hlo::eval {
namespace {

// Rounds toward zero and saturates; NaN becomes 0.
template <IntCarrier To>
To FloatToInt(double x, ElementType type) {
  if (std::isnan(x)) return 0;
  const bool is_signed = SignedCarrier<To>;
  const int bits = tensor::BitWidth(type) - (is_signed ? 1 : 0);
  const double above = std::ldexp(1.0, bits);
  const uint64_t top = bits == 0 ? 0 : tensor::LowBits(-1, bits);
  if (x >= above) return static_cast<To>(top);
  if (x <= (is_signed ? -above : 0.0)) return is_signed ? static_cast<To>(~top) : To{0};
  return static_cast<To>(x);
}

template <typename From>
double ToDouble(From x) {
  if constexpr (ComplexCarrier<From>) {
    return x.real();
  } else if constexpr (std::is_same_v<From, Bool>) {
    return IsTrue(x) ? 1 : 0;
  } else if constexpr (IntCarrier<From>) {
    using Wide = std::conditional_t<SignedCarrier<From>, int64_t, uint64_t>;
    return RoundToOdd(static_cast<Wide>(x));
  } else {
    return x;
  }
}

template <typename From>
bool IsNonZero(From x) {
  if constexpr (std::is_same_v<From, Bool>) return IsTrue(x);
  return x != From(0);
}

// Converts an element between carriers. `type` is the target type, and To is its carrier.
template <typename To, typename From>
To ConvertElement(From x, ElementType type) {
  if constexpr (std::is_same_v<To, Bool>) {
    return ToBool(IsNonZero(x));
  } else if constexpr (ComplexCarrier<To>) {
    using R = typename To::value_type;
    if constexpr (ComplexCarrier<From>) return To(static_cast<R>(x.real()), static_cast<R>(x.imag()));
    return To(ConvertElement<R>(x, type), 0);
  } else if constexpr (IntCarrier<To>) {
    if constexpr (FloatCarrier<From> || ComplexCarrier<From>) {
      return FloatToInt<To>(ToDouble(x), type);
    } else {
      return static_cast<To>(x);  // Wraps to the width of To; Narrow then wraps to types below 8 bits.
    }
  } else if constexpr (IntCarrier<From>) {
    return static_cast<To>(x);  // Rounds to nearest even. ToDouble is not used because it rounds to odd.
  } else {
    return static_cast<To>(ToDouble(x));
  }
}

template <typename To>
Array ConvertAll(const Value& wide, const tensor::Shape& result) {
  Array out({CarrierOf(result.type), result.dims});
  VisitCarrier(wide.type(), [&]<typename From>() {
    const auto x = wide.values<From>();
    const auto y = out.values<To>();
    for (const int64_t i : tensor::Indices(x)) y[i] = ConvertElement<To>(x[i], result.type);
  });
  return out;
}

absl::StatusOr<Value> EvalConvert(const Operation& operation) {
  return ConvertTo(operation.operand(0), operation.result().type);
}

// The bits of all elements without gaps; the first element begins at the lowest bit of the first byte.
std::vector<std::byte> PackBits(const Value& value) {
  const int width = tensor::BitWidth(value.type());
  const auto in = value.values<uint8_t>();
  std::vector<std::byte> packed((in.size() * width + 7) / 8);
  for (const int64_t i : tensor::Indices(in)) {
    const int64_t bit = i * width;
    const uint32_t kept = in[i] & ((1u << width) - 1);
    packed[bit / 8] |= static_cast<std::byte>(kept << (bit % 8));
  }
  return packed;
}

// The inverse of PackBits.
Array UnpackBits(absl::Span<const std::byte> packed, const tensor::Shape& shape) {
  const int width = tensor::BitWidth(shape.type);
  Array out(shape);
  const auto values = out.values<int8_t>();
  for (const int64_t i : tensor::Indices(values)) {
    const int64_t bit = i * width;
    values[i] = WrapSubByte(shape.type, std::to_integer<int8_t>(packed[bit / 8] >> (bit % 8)));
  }
  return out;
}

absl::StatusOr<Value> EvalBitcastConvert(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& result = operation.result();
  const bool packed_in = tensor::BitWidth(operand.type()) < 8, packed_out = tensor::BitWidth(result.type) < 8;
  if (!packed_in && !packed_out) return operand.WithShape(result);
  const std::vector<std::byte> bytes =
      packed_in ? PackBits(operand) : std::vector<std::byte>(operand.bytes().begin(), operand.bytes().end());
  if (packed_out) return Value(UnpackBits(bytes, result));
  return Value(Array(result, bytes));
}

// The widths of the exponent and the mantissa of a floating-point format, in bits.
struct FloatBits {
  int exponent, mantissa;
};

// The widths of the type's exponent and mantissa, or zeros if reduce-precision is not defined for the type.
FloatBits BitsOf(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return {11, 52};
    case ElementType::kF32:
      return {8, 23};
    case ElementType::kBF16:
      return {8, 7};
    case ElementType::kF16:
      return {5, 10};
    case ElementType::kF8E5M2:
      return {5, 2};
    case ElementType::kF8E4M3:
      return {4, 3};
    case ElementType::kF8E3M4:
      return {3, 4};
    default:
      return {0, 0};
  }
}

// Rounds the mantissa to nearest even. Then values that are too large for the smaller exponent become infinity, and
// values that are too small become zero. NaN is unchanged.
uint64_t ReducePrecision(uint64_t bits, FloatBits from, FloatBits to) {
  const uint64_t sign = bits & (uint64_t{1} << (from.exponent + from.mantissa));
  const uint64_t exponent_mask = ((uint64_t{1} << from.exponent) - 1) << from.mantissa;
  uint64_t magnitude = bits ^ sign;
  if (magnitude > exponent_mask) return bits;
  if (to.mantissa < from.mantissa) {
    const int drop = from.mantissa - to.mantissa;
    const uint64_t last = (magnitude >> drop) & 1;
    magnitude = (magnitude + (uint64_t{1} << (drop - 1)) - 1 + last) >> drop << drop;
  }
  if (to.exponent < from.exponent) {
    const uint64_t bias = (uint64_t{1} << (from.exponent - 1)) - 1;
    const uint64_t smaller = (uint64_t{1} << (to.exponent - 1)) - 1;
    const uint64_t exponent = (magnitude & exponent_mask) >> from.mantissa;
    if (exponent > bias + smaller) magnitude = exponent_mask;
    if (exponent <= bias - smaller) magnitude = 0;
  }
  return sign | magnitude;
}

absl::StatusOr<Value> EvalReducePrecision(const Operation& operation) {
  const ElementType type = operation.result().type;
  const FloatBits from = BitsOf(type);
  const FloatBits to{operation.attributes().exponent_bits, operation.attributes().mantissa_bits};
  if (from.exponent == 0) return NotDefined(operation, type);
  Array out = operation.operands[0].Take();
  const auto apply = [&]<typename T>(absl::Span<T> values) {
    for (T& value : values) value = static_cast<T>(ReducePrecision(value, from, to));
  };
  switch (tensor::ByteWidth(type)) {
    case 1:
      apply(out.values<uint8_t>());
      break;
    case 2:
      apply(out.values<uint16_t>());
      break;
    case 4:
      apply(out.values<uint32_t>());
      break;
    default:
      apply(out.values<uint64_t>());
      break;
  }
  return Value(std::move(out));
}

// Rounds to one of the two nearest integers: away from zero if the random number, as a fraction of its range, is
// smaller than the fractional part of x.
template <IntCarrier To>
To StochasticElement(double x, uint64_t random, int random_bits, ElementType type) {
  const double magnitude = std::fabs(x), whole = std::floor(magnitude), fraction = magnitude - whole;
  const bool up = std::isfinite(x) && random < std::ldexp(fraction, random_bits);
  return FloatToInt<To>(std::copysign(up ? whole + 1 : magnitude, x), type);
}

absl::StatusOr<Value> EvalStochasticConvert(const Operation& operation) {
  const tensor::Shape& result = operation.result();
  const Value wide = Widen(operation.operand(0));
  const Value& random = operation.operand(1);
  const Array doubles = ConvertAll<double>(wide, {ElementType::kF64, result.dims});
  const Array words = ConvertAll<uint64_t>(Widen(random), {ElementType::kU64, result.dims});
  return VisitCarrier(CarrierOf(result.type), [&]<typename To>() -> absl::StatusOr<Value> {
    if constexpr (IntCarrier<To>) {
      Array out({CarrierOf(result.type), result.dims});
      const auto y = out.values<To>();
      for (const int64_t i : tensor::Indices(y)) {
        y[i] = StochasticElement<To>(doubles.values<double>()[i], words.values<uint64_t>()[i],
                                     tensor::BitWidth(random.type()), result.type);
      }
      return Value(Narrow(std::move(out), result.type));
    }
    return NotDefined(operation, result.type);
  });
}

constexpr EvalRow kConvertRows[] = {
    {Opcode::kConvert, EvalConvert},
    {Opcode::kBitcastConvert, EvalBitcastConvert},
    {Opcode::kReducePrecision, EvalReducePrecision},
    {Opcode::kStochasticConvert, EvalStochasticConvert},
};

}  // namespace

Value ConvertTo(const Value& value, ElementType type) {
  if (value.type() == type) return value;
  const Value wide = Widen(value);
  if (wide.type() == type) return wide;
  const tensor::Shape result{type, value.dims()};
  if (IsSmallFloat(type) && wide.type() == ElementType::kF32) return Value(NarrowFloats(wide.values<float>(), result));
  if (IsSmallFloat(type)) {  // The result is as if rounded once, because ToDouble is exact or rounds to odd.
    Array out(result);
    VisitCarrier(wide.type(), [&]<typename From>() {
      const auto x = wide.values<From>();
      for (const int64_t i : tensor::Indices(x)) {
        const uint16_t bits = EncodeSmallFloat(type, ToDouble(x[i]));
        if (tensor::ByteWidth(type) == 2) {
          out.values<uint16_t>()[i] = bits;
        } else {
          out.values<uint8_t>()[i] = bits;
        }
      }
    });
    return Value(std::move(out));
  }
  return VisitCarrier(CarrierOf(type),
                      [&]<typename To>() -> Value { return Value(Narrow(ConvertAll<To>(wide, result), type)); });
}

absl::Span<const EvalRow> ConvertRows() { return kConvertRows; }

}  // namespace xlad::hlo::eval
