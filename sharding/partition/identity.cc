#include "sharding/partition/identity.h"

#include <algorithm>
#include <limits>

#include "hlo/analysis/constants.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

// Minimum and maximum have an identity only for ordered types with a greatest and a least value.
bool HasLimits(ElementType type) {
  return type == ElementType::kPred || tensor::IsInteger(type) || type == ElementType::kF16 ||
         type == ElementType::kBF16 || type == ElementType::kF32 || type == ElementType::kF64;
}

Instruction* IntegerLimit(hlo::Builder& builder, ElementType type, bool largest) {
  const auto scalar = [&](auto value) {
    return builder.Constant(tensor::Array::FromValues<decltype(value)>(type, {}, {value}));
  };
  if (type == ElementType::kS64) {
    return scalar(largest ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min());
  }
  if (type == ElementType::kU64) return scalar(largest ? std::numeric_limits<uint64_t>::max() : 0);
  const int bits = tensor::BitWidth(type);
  const double span = uint64_t{1} << (tensor::IsSigned(type) ? bits - 1 : bits);
  if (largest) return builder.Scalar(type, span - 1);
  return builder.Scalar(type, tensor::IsSigned(type) ? -span : 0);
}

// The largest or the smallest value of a type.
Instruction* Limit(hlo::Builder& builder, ElementType type, bool largest) {
  if (type == ElementType::kPred) return builder.Scalar(type, largest ? 1 : 0);
  if (tensor::IsInteger(type)) return IntegerLimit(builder, type, largest);
  const double infinity = std::numeric_limits<double>::infinity();
  return builder.Scalar(type, largest ? infinity : -infinity);
}

// Returns false for all floating-point types of 8 bits or fewer, because some of them have no negative zero.
bool HasNegativeZero(ElementType type) {
  return type == ElementType::kF16 || type == ElementType::kBF16 || type == ElementType::kF32 ||
         type == ElementType::kF64;
}

Instruction* AdditiveIdentity(hlo::Builder& builder, ElementType type) {
  if (!tensor::IsComplex(type)) return builder.Scalar(type, HasNegativeZero(type) ? -0.0 : 0.0);
  const bool single = type == ElementType::kC64;
  tensor::Array zero(tensor::Shape{type, {}});
  if (single) std::ranges::fill(zero.values<float>(), -0.0f);
  else std::ranges::fill(zero.values<double>(), -0.0);
  return builder.Constant(std::move(zero));
}

}  // namespace

bool HasIdentity(Opcode reduction, ElementType type) {
  switch (reduction) {
    case Opcode::kAdd:
    case Opcode::kMultiply: return true;
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kAnd: return type == ElementType::kPred || tensor::IsInteger(type);
    case Opcode::kMaximum:
    case Opcode::kMinimum: return HasLimits(type);
    default: return false;
  }
}

std::optional<Opcode> ReducerWithIdentity(const hlo::Computation& reducer, ElementType type) {
  const std::optional<Opcode> opcode = hlo::ReducerOpcode(reducer);
  return opcode.has_value() && HasIdentity(*opcode, type) ? opcode : std::nullopt;
}

Instruction* IdentityOf(hlo::Builder& builder, Opcode reduction, ElementType type) {
  if (!HasIdentity(reduction, type)) return nullptr;
  switch (reduction) {
    case Opcode::kAdd: return AdditiveIdentity(builder, type);
    case Opcode::kMultiply: return builder.Scalar(type, 1);
    case Opcode::kMaximum: return Limit(builder, type, /*largest=*/false);
    case Opcode::kMinimum: return Limit(builder, type, /*largest=*/true);
    case Opcode::kAnd: return tensor::IsSigned(type) ? builder.Scalar(type, -1) : Limit(builder, type, true);
    default: return builder.Scalar(type, 0);
  }
}

bool IsNeutralStart(const Instruction& scalar, Opcode reduction) {
  const ElementType type = scalar.shape().type();
  const hlo::Literal* literal = hlo::KnownLiteral(scalar);
  if (literal == nullptr || !scalar.shape().is_scalar() || !HasIdentity(reduction, type)) return false;
  hlo::Module scratch("identity");
  hlo::Builder builder(scratch.Add(std::make_unique<hlo::Computation>("main")));
  const tensor::Array& value = literal->array;
  const auto equals = [&](const Instruction* constant) { return value == constant->literal()->array; };
  return equals(IdentityOf(builder, reduction, type)) ||
         (reduction == Opcode::kAdd && equals(builder.Scalar(type, 0)));
}

}  // namespace xlad::sharding
