// Compare, select and clamp.
#include <bit>
#include <cstring>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/elementwise.h"

namespace xlad::hlo::eval {
namespace {

template <typename T>
void CompareAll(const Attributes& attributes, absl::Span<const T> x, absl::Span<const T> y, absl::Span<Bool> out) {
  const Comparison comparison = attributes.comparison;
  if constexpr (FloatCarrier<T>) {
    if (attributes.comparison_type == ComparisonType::kFloatTotalOrder) {
      for (const int64_t i : tensor::Indices(x))
        out[i] = ToBool(ComparisonHolds(comparison, TotalOrder(x[i]), TotalOrder(y[i])));
      return;
    }
  }
  for (const int64_t i : tensor::Indices(x)) out[i] = ToBool(ComparisonHolds(comparison, x[i], y[i]));
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

// The predicate is a scalar or has the operands' dimensions. Elements are moved as bits.
absl::StatusOr<Value> EvalSelect(const Operation& operation) {
  const auto condition = operation.operand(0).values<Bool>();
  const Value &yes = operation.operand(1), &no = operation.operand(2);
  if (operation.operand(0).dims().empty()) return IsTrue(condition[0]) ? yes : no;
  Array out(operation.result());
  const auto choose = [&]<typename T>() {
    const auto x = yes.values<T>(), y = no.values<T>();
    const auto z = out.values<T>();
    for (const int64_t i : tensor::Indices(condition)) z[i] = IsTrue(condition[i]) ? x[i] : y[i];
  };
  switch (tensor::ByteWidth(yes.type())) {
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
    const int64_t low_step = low.dims().empty() ? 0 : 1, high_step = high.dims().empty() ? 0 : 1;
    for (const int64_t i : tensor::Indices(values)) {
      results[i] = Minimum::Apply(Maximum::Apply(values[i], lows[i * low_step]), highs[i * high_step]);
    }
    return Value(Narrow(std::move(out), type));
  });
}

constexpr EvalRow kSelectRows[] = {
    {Opcode::kCompare, EvalCompare},
    {Opcode::kSelect, EvalSelect},
    {Opcode::kClamp, EvalClamp},
};

}  // namespace

absl::Span<const EvalRow> SelectRows() { return kSelectRows; }

}  // namespace xlad::hlo::eval
