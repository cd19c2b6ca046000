// Simplify's rules for elementwise instructions.
#include <cmath>

#include "compiler/analysis/clone.h"
#include "compiler/passes/simplify_rules.h"
#include "hlo/analysis/constants.h"

namespace xlad::compiler {
namespace {

bool IsSplat(const Instruction* instruction, double wanted) {
  return hlo::SplatValue(*instruction) == wanted;
}

bool IsNegativeZero(const Instruction* instruction) {
  const std::optional<double> value = hlo::SplatValue(*instruction);
  return value == 0 && std::signbit(*value);
}

bool IsFloat(const Instruction* instruction) { return tensor::IsFloating(instruction->shape().type()); }
// Whether the element type has no rounding, no NaNs and no signed zeros.
bool IsExact(const Instruction* instruction) {
  return tensor::IsInteger(instruction->shape().type()) || instruction->shape().type() == ElementType::kPred;
}

Instruction* SimplifyAdd(Instruction* add) {
  for (int i = 0; i < 2; ++i) {
    Instruction* other = add->operand(1 - i);
    if (IsExact(add) && IsSplat(add->operand(i), 0)) return other;
    if (IsFloat(add) && IsNegativeZero(add->operand(i))) return other;
  }
  return nullptr;
}

Instruction* SimplifySubtract(Instruction* subtract) {
  // x - (+0) is x for every x, including -0. x - (-0) is not x for every x, because -0 - (-0) is +0.
  if (IsSplat(subtract->operand(1), 0) && !IsNegativeZero(subtract->operand(1))) return subtract->operand(0);
  return nullptr;
}

Instruction* SimplifyMultiply(Instruction* multiply) {
  for (int i = 0; i < 2; ++i) {
    if (IsSplat(multiply->operand(i), 1)) return multiply->operand(1 - i);
    if (IsExact(multiply) && IsSplat(multiply->operand(i), 0)) return multiply->operand(i);
  }
  return nullptr;
}

Instruction* SimplifyDivide(Instruction* divide, hlo::Builder& builder) {
  const std::optional<double> value = hlo::SplatValue(*divide->operand(1));
  if (!value) return nullptr;
  if (value == 1) return divide->operand(0);
  const ElementType type = divide->shape().type();
  if (type != ElementType::kF32 && type != ElementType::kF64) return nullptr;
  int exponent = 0;
  const bool is_power_of_two = std::abs(std::frexp(*value, &exponent)) == 0.5;
  if (!is_power_of_two || exponent > 100 || exponent < -100) return nullptr;
  Instruction* reciprocal = builder.Scalar(type, 1 / *value);
  return builder.Binary(Opcode::kMultiply, divide->operand(0), builder.Full(divide->shape(), reciprocal));
}

Instruction* SimplifyExtremum(Instruction* extremum) {
  if (!IsFloat(extremum)) return nullptr;
  // A NaN operand makes the result NaN, so max(x, -inf) is x for every x.
  const double identity = extremum->opcode() == Opcode::kMaximum ? -INFINITY : INFINITY;
  for (int i = 0; i < 2; ++i) {
    if (IsSplat(extremum->operand(i), identity)) return extremum->operand(1 - i);
  }
  return nullptr;
}

Instruction* SimplifyBitwise(Instruction* bitwise) {
  const bool is_pred = bitwise->shape().type() == ElementType::kPred;
  for (int i = 0; i < 2; ++i) {
    Instruction* x = bitwise->operand(i);
    Instruction* other = bitwise->operand(1 - i);
    const bool zero = IsSplat(x, 0);
    const bool ones = is_pred && IsSplat(x, 1);
    switch (bitwise->opcode()) {
      case Opcode::kAnd:
        if (zero) return x;
        if (ones) return other;
        break;
      case Opcode::kOr:
        if (zero) return other;
        if (ones) return x;
        break;
      default:
        if (zero) return other;
    }
  }
  return nullptr;
}

// x^whole, times the square root of x if `has_root`. `whole` is positive or `has_root` is true.
Instruction* Multiplied(Instruction* x, int whole, bool has_root, hlo::Builder& builder) {
  Instruction* product = nullptr;
  const auto multiply = [&](Instruction* factor) {
    product = product == nullptr ? factor : builder.Binary(Opcode::kMultiply, product, factor);
  };
  Instruction* square = whole >= 2 ? builder.Binary(Opcode::kMultiply, x, x) : nullptr;
  for (int i = 0; i < whole / 2; ++i) multiply(square);
  if (whole % 2 == 1) multiply(x);
  if (has_root) multiply(builder.Unary(Opcode::kSqrt, x));
  return product;
}

// Powers by whole numbers and halves become multiplications, a square root and a division, because these are vector
// instructions, and the power of an f64 is a call of the C library for each element. A result that is below the normal
// numbers of the type may become 0. Narrow types would round too often, and their squares overflow early.
Instruction* SimplifyPower(Instruction* power, hlo::Builder& builder) {
  constexpr double kMaxHalves = 8;
  const std::optional<double> exponent = hlo::SplatValue(*power->operand(1));
  if (!IsFloat(power) || !exponent) return nullptr;
  Instruction* x = power->operand(0);
  if (*exponent == 1) return x;
  if (*exponent == 2) return builder.Binary(Opcode::kMultiply, x, x);
  const ElementType type = power->shape().type();
  const double halves = 2 * std::abs(*exponent);
  if ((type != ElementType::kF32 && type != ElementType::kF64) || halves == 0) return nullptr;
  if (halves > kMaxHalves || halves != std::floor(halves)) return nullptr;
  const auto full = [&](double value) { return builder.Full(power->shape(), builder.Scalar(type, value)); };
  const bool has_root = std::fmod(halves, 2) == 1;
  Instruction* result = Multiplied(x, halves / 2, has_root, builder);
  if (has_root) result = builder.Unary(Opcode::kAbs, result);  // The power of -0 is +0 or +inf.
  if (*exponent < 0) result = builder.Binary(Opcode::kDivide, full(1), result);
  if (!has_root) return result;
  // The power of -inf is that of inf, but the square root of -inf is a NaN.
  Instruction* is_infinite = builder.Compare(hlo::Comparison::kEq, x, full(-INFINITY));
  return builder.Select(is_infinite, full(*exponent < 0 ? 0 : INFINITY), result);
}

// select(p, true, false) is p, and select(p, false, true) is not p.
Instruction* SimplifySelect(Instruction* select, hlo::Builder& builder) {
  Instruction* const predicate = select->operand(0);
  if (select->operand(1) == select->operand(2)) return select->operand(1);
  const std::optional<double> value = hlo::SplatValue(*predicate);
  if (value) return select->operand(*value != 0 ? 1 : 2);
  if (select->shape() != predicate->shape()) return nullptr;
  if (IsSplat(select->operand(1), 1) && IsSplat(select->operand(2), 0)) return predicate;
  if (IsSplat(select->operand(1), 0) && IsSplat(select->operand(2), 1)) return builder.Unary(Opcode::kNot, predicate);
  return nullptr;
}

Instruction* SimplifyCompare(Instruction* compare, hlo::Builder& builder) {
  if (compare->operand(0) != compare->operand(1) || !IsExact(compare->operand(0))) return nullptr;
  const hlo::Comparison comparison = compare->attributes().comparison;
  const bool holds =
      comparison == hlo::Comparison::kEq || comparison == hlo::Comparison::kGe || comparison == hlo::Comparison::kLe;
  return builder.Full(compare->shape(), builder.Scalar(ElementType::kPred, holds ? 1 : 0));
}

// Whether every value of type `narrow` can be represented in type `wide`.
bool IsWidening(ElementType narrow, ElementType wide) {
  if (narrow == ElementType::kBF16 || narrow == ElementType::kF16) {
    return wide == ElementType::kF32 || wide == ElementType::kF64;
  }
  if (narrow == ElementType::kF32) return wide == ElementType::kF64;
  if (tensor::IsSigned(narrow) && tensor::IsSigned(wide)) return tensor::BitWidth(narrow) <= tensor::BitWidth(wide);
  if (tensor::IsUnsigned(narrow) && tensor::IsInteger(wide)) return tensor::BitWidth(narrow) < tensor::BitWidth(wide);
  return false;
}

Instruction* SimplifyConvert(Instruction* convert) {
  Instruction* x = convert->operand(0);
  if (x->shape().type() == convert->shape().type()) return x;
  if (x->opcode() != Opcode::kConvert) return nullptr;
  Instruction* source = x->operand(0);
  if (source->shape().type() != convert->shape().type()) return nullptr;
  return IsWidening(source->shape().type(), x->shape().type()) ? source : nullptr;
}

Instruction* SimplifyInvolution(Instruction* instruction) {
  Instruction* x = instruction->operand(0);
  return x->opcode() == instruction->opcode() ? x->operand(0) : nullptr;
}

// Whether the instruction applies one scalar operation at every index. This is false for a bitcast-convert between
// element types of different widths, which adds or removes a minor dimension. Clamp and select may have scalar
// operands.
bool MapsScalars(const Instruction& instruction) {
  if (!hlo::IsElementwise(instruction.opcode()) || !instruction.shape().is_array()) return false;
  const bool may_mix = instruction.opcode() == Opcode::kClamp || instruction.opcode() == Opcode::kSelect;
  for (const Instruction* operand : instruction.operands()) {
    if (operand->shape().is_scalar() && may_mix) continue;
    if (operand->shape().dims() != instruction.shape().dims()) return false;
  }
  return true;
}

// op(broadcast(s), broadcast(t), ...) of scalars is broadcast(op(s, t, ...)).
Instruction* HoistScalarOp(Instruction* instruction, hlo::Builder& builder) {
  if (!MapsScalars(*instruction) || instruction->opcode() == Opcode::kStochasticConvert) return nullptr;
  if (instruction->shape().is_scalar() || instruction->operand_count() == 0) return nullptr;
  std::vector<Instruction*> scalars;
  for (Instruction* operand : instruction->operands()) {
    if (operand->shape().is_scalar()) {
      scalars.push_back(operand);
      continue;
    }
    if (operand->opcode() != Opcode::kBroadcast || !operand->operand(0)->shape().is_scalar()) return nullptr;
    scalars.push_back(operand->operand(0));
  }
  Instruction* scalar = CloneWithOperands(*instruction, scalars, builder.computation());
  scalar->mutable_shape() = Shape(instruction->shape().type(), {});
  return builder.Full(instruction->shape(), scalar);
}

Instruction* SimplifyByOpcode(Instruction* instruction, hlo::Builder& builder) {
  switch (instruction->opcode()) {
    case Opcode::kAdd:
      return SimplifyAdd(instruction);
    case Opcode::kSubtract:
      return SimplifySubtract(instruction);
    case Opcode::kMultiply:
      return SimplifyMultiply(instruction);
    case Opcode::kDivide:
      return SimplifyDivide(instruction, builder);
    case Opcode::kMaximum:
    case Opcode::kMinimum:
      return SimplifyExtremum(instruction);
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
      return SimplifyBitwise(instruction);
    case Opcode::kPower:
      return SimplifyPower(instruction, builder);
    case Opcode::kSelect:
      return SimplifySelect(instruction, builder);
    case Opcode::kCompare:
      return SimplifyCompare(instruction, builder);
    case Opcode::kConvert:
      return SimplifyConvert(instruction);
    case Opcode::kNegate:
    case Opcode::kNot:
      return SimplifyInvolution(instruction);
    default:
      return nullptr;
  }
}

}  // namespace

Instruction* SimplifyElementwise(Instruction* instruction, hlo::Builder& builder) {
  if (!hlo::IsElementwise(instruction->opcode())) return nullptr;
  Instruction* better = SimplifyByOpcode(instruction, builder);
  return better != nullptr ? better : HoistScalarOp(instruction, builder);
}

}  // namespace xlad::compiler
