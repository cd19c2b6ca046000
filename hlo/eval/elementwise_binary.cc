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

// Shifts and mulhi depend on the declared width, not on the carrier's.
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
      for (size_t i = 0; i < x.size(); ++i) z[i] = apply(x[i], y[i], width);
      return Value(Narrow(std::move(out), type));
    }
    return NotDefined(operation, type);
  });
}

// A shift amount as unsigned: negative ones are as good as too large.
template <IntCarrier T>
uint64_t Amount(T amount) {
  return amount < 0 ? ~uint64_t{0} : static_cast<uint64_t>(amount);
}

absl::StatusOr<Value> EvalShiftLeft(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T amount, int width) {
    return Amount(amount) >= static_cast<uint64_t>(width) ? T{0} : static_cast<T>(static_cast<uint64_t>(x) << amount);
  });
}

absl::StatusOr<Value> EvalShiftRightLogical(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T amount, int width) {
    if (Amount(amount) >= static_cast<uint64_t>(width)) return T{0};
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    return static_cast<T>((static_cast<uint64_t>(x) & mask) >> amount);
  });
}

absl::StatusOr<Value> EvalShiftRightArithmetic(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T amount, int width) {
    // An unsigned operand is taken as the two's complement number of its width.
    const int unused = 64 - width;
    const int64_t value = static_cast<int64_t>(static_cast<uint64_t>(x) << unused) >> unused;
    return static_cast<T>(value >> std::min<uint64_t>(Amount(amount), 63));
  });
}

absl::StatusOr<Value> EvalMulhi(const Operation& operation) {
  return EvalBits(operation, []<typename T>(T x, T y, int width) {
    using Wide = std::conditional_t<SignedCarrier<T>, __int128, unsigned __int128>;
    return static_cast<T>((static_cast<Wide>(x) * static_cast<Wide>(y)) >> width);
  });
}

constexpr EvalRow kRows[] = {
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

absl::Span<const EvalRow> BinaryRows() { return kRows; }

}  // namespace xlad::hlo::eval
