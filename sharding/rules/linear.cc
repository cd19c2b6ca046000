#include "sharding/rules/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Whether x is a broadcast of a constant of a floating type that is neither infinite nor NaN.
bool IsFiniteConstant(const Instruction& x) {
  const Instruction* scalar = RepeatedScalar(&x);
  if (scalar->opcode() != Opcode::kConstant || !scalar->shape().is_scalar() || scalar->literal()->elided) return false;
  const tensor::Array& array = scalar->literal()->array;
  switch (array.shape().type) {
    case tensor::ElementType::kF32: return std::isfinite(array.values<float>()[0]);
    case tensor::ElementType::kF64: return std::isfinite(array.values<double>()[0]);
    case tensor::ElementType::kBF16: {
      uint16_t bits = 0;
      std::memcpy(&bits, array.bytes().data(), sizeof(bits));
      return (bits & 0x7f80u) != 0x7f80u;  // An exponent of all ones means infinity or NaN.
    }
    default: return false;
  }
}

// Whether the conversion keeps every value exactly.
bool Widens(const Instruction& convert) {
  const tensor::ElementType from = convert.operand(0)->shape().type(), to = convert.shape().type();
  if (from == to) return true;
  const bool wider = to == tensor::ElementType::kF64 || to == tensor::ElementType::kF32;
  return tensor::IsFloating(from) && wider && tensor::BitWidth(from) < tensor::BitWidth(to);
}

}  // namespace

const Instruction* RepeatedScalar(const Instruction* x) {
  while (x->opcode() == Opcode::kBroadcast || x->opcode() == Opcode::kCopy || x->opcode() == Opcode::kReshape) {
    x = x->operand(0);
  }
  return x;
}

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

bool IsZero(const Instruction& x) {
  const Instruction* scalar = RepeatedScalar(&x);
  if (scalar->opcode() != Opcode::kConstant || !scalar->shape().is_array() || scalar->literal()->elided) return false;
  const auto bytes = scalar->literal()->array.bytes();
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace xlad::sharding
