#include "compiler/analysis/op_cost.h"

namespace xlad::compiler {

using hlo::Opcode;

namespace {

// Whether the permutation keeps the last dimension, so that rows stay contiguous.
bool KeepsRows(const hlo::Instruction& transpose) {
  return transpose.dimensions().empty() || transpose.dimensions().back() == transpose.shape().ndim() - 1;
}

}  // namespace

OpCost CostOf(const hlo::Instruction& instruction) {
  if (!instruction.shape().is_array()) return OpCost::kNotFusible;
  switch (instruction.opcode()) {
    case Opcode::kConstant:
      return instruction.shape().is_scalar() ? OpCost::kFree : OpCost::kNotFusible;
    case Opcode::kIota:
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kSlice:
    case Opcode::kBitcastConvert:
    case Opcode::kReverse:
      return OpCost::kFree;
    // A conversion to a type that is not narrower counts as free, because storing the operand and converting it at each
    // read never moves more bytes.
    case Opcode::kConvert:
      return tensor::ByteWidth(instruction.shape().type()) >= tensor::ByteWidth(instruction.operand(0)->shape().type())
                 ? OpCost::kFree
                 : OpCost::kCheap;
    case Opcode::kTranspose:
      return KeepsRows(instruction) ? OpCost::kFree : OpCost::kCheap;
    case Opcode::kAbs:
    case Opcode::kCeil:
    case Opcode::kFloor:
    case Opcode::kImag:
    case Opcode::kReal:
    case Opcode::kIsFinite:
    case Opcode::kNegate:
    case Opcode::kNot:
    case Opcode::kPopcnt:
    case Opcode::kCountLeadingZeros:
    case Opcode::kRoundNearestAfz:
    case Opcode::kRoundNearestEven:
    case Opcode::kSign:
    case Opcode::kReducePrecision:
    case Opcode::kAdd:
    case Opcode::kSubtract:
    case Opcode::kMultiply:
    case Opcode::kMaximum:
    case Opcode::kMinimum:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kShiftLeft:
    case Opcode::kShiftRightArithmetic:
    case Opcode::kShiftRightLogical:
    case Opcode::kComplex:
    case Opcode::kCompare:
    case Opcode::kClamp:
    case Opcode::kSelect:
    case Opcode::kPad:
    case Opcode::kConcatenate:
    case Opcode::kDynamicSlice:
    case Opcode::kPartitionId:
      return OpCost::kCheap;
    case Opcode::kGather:
      return OpCost::kExpensive;
    case Opcode::kReduce:
      return instruction.operand_count() == 2 ? OpCost::kExpensive : OpCost::kNotFusible;
    default:
      return hlo::IsElementwise(instruction.opcode()) ? OpCost::kExpensive : OpCost::kNotFusible;
  }
}

}  // namespace xlad::compiler
