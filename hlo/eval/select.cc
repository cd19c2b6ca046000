// Compare, select and clamp.
#include <bit>
#include <cstring>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/elementwise.h"

namespace xlad::hlo::eval {
namespace {

template <typename T>
bool Holds(Comparison comparison, const T& x, const T& y) {
  if constexpr (ComplexCarrier<T>) {
    return comparison == Comparison::kNe ? x != y : x == y;
  } else {
    switch (comparison) {
      case Comparison::kEq:
        return x == y;
      case Comparison::kNe:
        return x != y;
      case Comparison::kGe:
        return x >= y;
      case Comparison::kGt:
        return x > y;
      case Comparison::kLe:
        return x <= y;
      case Comparison::kLt:
        return x < y;
    }
    return false;
  }
}

template <typename T>
void CompareAll(const Attributes& attributes, absl::Span<const T> x, absl::Span<const T> y, absl::Span<Bool> out) {
  const Comparison comparison = attributes.comparison;
  if constexpr (FloatCarrier<T>) {
    if (attributes.comparison_type == ComparisonType::kFloatTotalOrder) {
      for (size_t i = 0; i < x.size(); ++i) out[i] = ToBool(Holds(comparison, TotalOrder(x[i]), TotalOrder(y[i])));
      return;
    }
  }
  for (size_t i = 0; i < x.size(); ++i) out[i] = ToBool(Holds(comparison, x[i], y[i]));
}

absl::StatusOr<Value> EvalCompare(const Operation& operation) {
  const ElementType type = operation.operand(0).type();
  return VisitCarrier(CarrierOf(type), [&]<typename T>() -> absl::StatusOr<Value> {
    const Comparison comparison = operation.attributes().comparison;
    if (ComplexCarrier<T> && comparison != Comparison::kEq && comparison != Comparison::kNe) {
      return NotDefined(operation, type);
    }
    const Value left = Widen(operation.operand(0)), right = Widen(operation.operand(1));
    Array out(operation.result());
    CompareAll<T>(operation.attributes(), left.values<T>(), right.values<T>(), out.values<Bool>());
    return Value(std::move(out));
  });
}

// The predicate is a scalar or has the operands' dimensions; either way elements are only moved.
absl::StatusOr<Value> EvalSelect(const Operation& operation) {
  const auto condition = operation.operand(0).values<Bool>();
  const Value &yes = operation.operand(1), &no = operation.operand(2);
  if (operation.operand(0).dims().empty()) return IsTrue(condition[0]) ? yes : no;
  Array out(operation.result());
  const size_t width = tensor::ByteWidth(yes.type());
  const auto choose = [&]<typename T>() {
    const auto x = yes.values<T>(), y = no.values<T>();
    const auto z = out.values<T>();
    for (size_t i = 0; i < condition.size(); ++i) z[i] = IsTrue(condition[i]) ? x[i] : y[i];
  };
  switch (width) {
    case 1:
      choose.operator()<uint8_t>();
      break;
    case 2:
      choose.operator()<uint16_t>();
      break;
    case 4:
      choose.operator()<uint32_t>();
      break;
    case 8:
      choose.operator()<uint64_t>();
      break;
    default:
      choose.operator()<Complex128>();
      break;
  }
  return Value(std::move(out));
}

// minimum(maximum(x, low), high); the bounds may be scalars.
absl::StatusOr<Value> EvalClamp(const Operation& operation) {
  const Value& operand = operation.operand(1);
  const ElementType type = operand.type();
  return VisitCarrier(CarrierOf(type), [&]<typename T>() -> absl::StatusOr<Value> {
    const Value low = Widen(operation.operand(0)), x = Widen(operand), high = Widen(operation.operand(2));
    Array out({CarrierOf(type), operand.dims()});
    const auto lows = low.values<T>(), values = x.values<T>(), highs = high.values<T>();
    const auto results = out.values<T>();
    const size_t low_step = low.dims().empty() ? 0 : 1, high_step = high.dims().empty() ? 0 : 1;
    for (size_t i = 0; i < values.size(); ++i) {
      results[i] = Minimum::Apply(Maximum::Apply(values[i], lows[i * low_step]), highs[i * high_step]);
    }
    return Value(Narrow(std::move(out), type));
  });
}

constexpr EvalRow kRows[] = {
    {Opcode::kCompare, EvalCompare},
    {Opcode::kSelect, EvalSelect},
    {Opcode::kClamp, EvalClamp},
};

}  // namespace

absl::Span<const EvalRow> SelectRows() { return kRows; }

}  // namespace xlad::hlo::eval
