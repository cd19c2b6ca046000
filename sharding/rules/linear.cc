#include "sharding/rules/linear.h"

#include <cmath>

#include "hlo/analysis/constants.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Returns true if every element of x is the same finite constant of type f32, f64 or bf16, the usual types of partial
// sums.
bool IsFiniteConstant(const Instruction& x) {
  const tensor::ElementType type = x.shape().type();
  const bool summed = type == tensor::ElementType::kF32 || type == tensor::ElementType::kF64 ||
                      type == tensor::ElementType::kBF16;
  const std::optional<double> value = summed ? hlo::SplatValue(x) : std::nullopt;
  return value && std::isfinite(*value);
}

// Whether the conversion is from a floating type to f32 or f64 and keeps every value exactly, or does not change the
// type. Conversions from integers do not count: sums of integers wrap.
bool Widens(const Instruction& convert) {
  const tensor::ElementType from = convert.operand(0)->shape().type(), to = convert.shape().type();
  if (from == to) return true;
  const bool wider = to == tensor::ElementType::kF64 || to == tensor::ElementType::kF32;
  return tensor::IsFloating(from) && wider && tensor::BitWidth(from) < tensor::BitWidth(to);
}

}  // namespace

bool IsLinearIn(const Instruction& op, int64_t operand) {
  if (!op.shape().is_array()) return false;
  switch (op.opcode()) {
    case Opcode::kAdd:
    case Opcode::kSubtract: return tensor::IsFloating(op.shape().type()) || tensor::IsInteger(op.shape().type());
    case Opcode::kNegate:
    case Opcode::kTranspose:
    case Opcode::kReshape:
    case Opcode::kBroadcast:
    case Opcode::kSlice:
    case Opcode::kReverse:
    case Opcode::kPad:
    case Opcode::kConcatenate: return true;
    case Opcode::kConvert: return Widens(op);
    case Opcode::kMultiply:
      return IsFiniteConstant(*op.operand(1 - operand)) && !IsFiniteConstant(*op.operand(operand));
    case Opcode::kDivide: return operand == 0 && IsFiniteConstant(*op.operand(1)) && !IsZero(*op.operand(1));
    case Opcode::kSelect: return operand > 0;
    case Opcode::kDynamicSlice: return operand == 0;
    case Opcode::kDynamicUpdateSlice: return operand < 2;
    case Opcode::kReduce: return op.operand_count() == 2 && ReductionOf(*op.called()[0]) == Opcode::kAdd;
    default: return false;
  }
}

}  // namespace xlad::sharding
