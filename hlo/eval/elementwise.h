// Typed loops for elementwise instructions.
#pragma once

#include "hlo/eval/numeric.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// Applies Op::Apply to each element in the operand's carrier type. Returns NotDefined if Op has no Apply for that type.
// The carrier of the result may be another type (abs of complex numbers, is-finite).
template <typename Op>
absl::StatusOr<Value> EvalUnary(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& result = operation.result();
  return VisitCarrier(CarrierOf(operand.type()), [&]<typename T>() -> absl::StatusOr<Value> {
    if constexpr (requires { Op::Apply(T{}); }) {
      using R = decltype(Op::Apply(T{}));
      const Value wide = Widen(operand);
      Array out({CarrierOf(result.type), result.dims});
      const auto x = wide.values<T>();
      const auto y = out.values<R>();
      for (const int64_t i : tensor::Indices(x)) y[i] = Op::Apply(x[i]);
      return Value(Narrow(std::move(out), result.type));
    }
    return NotDefined(operation, operand.type());
  });
}

// Applies Op::Apply to each pair of elements of two operands of the same element type.
template <typename Op>
absl::StatusOr<Value> EvalBinary(const Operation& operation) {
  const Value& left = operation.operand(0);
  const tensor::Shape& result = operation.result();
  return VisitCarrier(CarrierOf(left.type()), [&]<typename T>() -> absl::StatusOr<Value> {
    if constexpr (requires { Op::Apply(T{}, T{}); }) {
      using R = decltype(Op::Apply(T{}, T{}));
      const Value wide_left = Widen(left), wide_right = Widen(operation.operand(1));
      Array out({CarrierOf(result.type), result.dims});
      const auto x = wide_left.values<T>();
      const auto y = wide_right.values<T>();
      const auto z = out.values<R>();
      for (const int64_t i : tensor::Indices(x)) z[i] = Op::Apply(x[i], y[i]);
      return Value(Narrow(std::move(out), result.type));
    }
    return NotDefined(operation, left.type());
  });
}

}  // namespace xlad::hlo::eval
