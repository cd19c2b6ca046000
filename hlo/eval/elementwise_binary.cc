// Two-operand arithmetic, logic and shifts.
#include <bit>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/elementwise.h"

namespace xlad::hlo::eval {
namespace {

struct MakeComplex {
  template <FloatCarrier T>
  static std::complex<T> Apply(T real, T imag) {
    return {real, imag};
  }
};

// Shifts and mulhi depend on the width of the element type, not of its carrier.
template <typename F>
absl::StatusOr<Value> EvalBits(const Operation& operation, const F& apply) {
  const ElementType type = operation.operand(0).type();
  const int width = tensor::BitWidth(type);
  return VisitCarrier(CarrierOf(type), [&]<typename T>() -> absl::StatusOr<Value> {
    if constexpr (IntCarrier<T>) {
      const Value left = Widen(operation.operand(0)), right = Widen(operation.operand(1));
      Array out({CarrierOf(type), operation.result().dims});
      const auto x = left.values<T>();
      const auto y = right.values<T>();
      const auto z = out.values<T>();
      for (const int64_t i : tensor::Indices(x)) z[i] = apply(x[i], y[i], width);
      return Value(Narrow(std::move(out), type));
    }
    return NotDefined(operation, type);
  });
}

// Whether the amount of a shift is at least the width. Negative amounts count as large unsigned numbers.
template <IntCarrier T>
bool ShiftsAll(T amount, int width) {
  return std::make_unsigned_t<T>(amount) >= std::make_unsigned_t<T>(width);
}

absl::StatusOr<Value> EvalShiftLeft(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T amount, int width) {
    return ShiftsAll(amount, width) ? T{0} : static_cast<T>(tensor::LowBits(x, width) << amount);
  });
}

absl::StatusOr<Value> EvalShiftRightLogical(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T amount, int width) {
    return ShiftsAll(amount, width) ? T{0} : static_cast<T>(tensor::LowBits(x, width) >> amount);
  });
}

absl::StatusOr<Value> EvalShiftRightArithmetic(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T amount, int width) {
    // An unsigned operand is read as a two's complement number of its width.
    const int64_t value = tensor::SignExtend(x, width);
    return static_cast<T>(ShiftsAll(amount, width) ? value >> 63 : value >> amount);
  });
}

absl::StatusOr<Value> EvalMulhi(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T y, int width) {
    using Wide = std::conditional_t<SignedCarrier<T>, __int128, unsigned __int128>;
    return static_cast<T>((static_cast<Wide>(x) * static_cast<Wide>(y)) >> width);
  });
}

constexpr EvalRow kElementwiseBinaryRows[] = {
    {Opcode::kAdd, EvalBinary<Add>},
    {Opcode::kSubtract, EvalBinary<Subtract>},
    {Opcode::kMultiply, EvalBinary<Multiply>},
    {Opcode::kDivide, EvalBinary<Divide>},
    {Opcode::kRemainder, EvalBinary<Remainder>},
    {Opcode::kPower, EvalBinary<Power>},
    {Opcode::kMaximum, EvalBinary<Maximum>},
    {Opcode::kMinimum, EvalBinary<Minimum>},
    {Opcode::kAnd, EvalBinary<And>},
    {Opcode::kOr, EvalBinary<Or>},
    {Opcode::kXor, EvalBinary<Xor>},
    {Opcode::kAtan2, EvalBinary<Atan2>},
    {Opcode::kComplex, EvalBinary<MakeComplex>},
    {Opcode::kShiftLeft, EvalShiftLeft},
    {Opcode::kShiftRightLogical, EvalShiftRightLogical},
    {Opcode::kShiftRightArithmetic, EvalShiftRightArithmetic},
    {Opcode::kMulhi, EvalMulhi},
};

}  // namespace

absl::Span<const EvalRow> BinaryRows() { return kElementwiseBinaryRows; }

}  // namespace xlad::hlo::eval
