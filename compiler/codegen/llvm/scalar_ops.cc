// Elementwise opcodes on single elements: one table for each class of element types.
#include "compiler/codegen/llvm/scalar_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <map>

#include "compiler/codegen/llvm/complex_ops.h"
#include "compiler/codegen/llvm/convert_ops.h"
#include "compiler/codegen/llvm/elements.h"
#include "compiler/codegen/llvm/integer_ops.h"
#include "compiler/codegen/llvm/math.h"
#include "compiler/codegen/llvm/types.h"

namespace xlad::compiler {
namespace {

using hlo::Opcode;
using llvm::Intrinsic::ID;

using Operands = absl::Span<llvm::Value* const>;
using FloatOp = llvm::Value* (*)(Ir& ir, Operands x);

template <ID id>
llvm::Value* UnaryIntrinsic(Ir& ir, Operands x) {
  return ir.b.CreateUnaryIntrinsic(id, x[0]);
}

template <ID id>
llvm::Value* BinaryIntrinsic(Ir& ir, Operands x) {
  return ir.b.CreateBinaryIntrinsic(id, x[0], x[1]);
}

llvm::Value* Sign(Ir& ir, Operands x) {
  llvm::Value* zero = llvm::ConstantFP::get(x[0]->getType(), 0.0);
  llvm::Value* one = llvm::ConstantFP::get(x[0]->getType(), 1.0);
  llvm::Value* sign = ir.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, one, x[0]);
  // If the operand is a zero or a NaN, the result is the operand.
  return ir.b.CreateSelect(ir.b.CreateFCmpUEQ(x[0], zero), x[0], sign);
}

llvm::Value* Clamp(Ir& ir, Operands x) {
  llvm::Value* raised = ir.b.CreateMaximum(x[1], x[0]);
  return ir.b.CreateMinimum(raised, x[2]);
}

// The maximum or minimum of two floats, computed without LLVM's intrinsic, because the intrinsic does not propagate
// NaNs if LLVM 19 narrows f16 arithmetic on x86. Equal operands can differ only in the sign of a zero, so the AND of
// their bits is the maximum and the OR is the minimum.
llvm::Value* Extremum(Ir& ir, bool is_max, llvm::Value* x, llvm::Value* y) {
  IrBuilder& b = ir.b;
  llvm::Value* first = is_max ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);
  llvm::Value* take_first = b.CreateOr(b.CreateFCmpUNO(x, x), b.CreateAnd(first, b.CreateFCmpORD(y, y)));
  llvm::Type* integer = b.getIntNTy(x->getType()->getScalarSizeInBits());
  llvm::Value* x_bits = b.CreateBitCast(x, integer);
  llvm::Value* y_bits = b.CreateBitCast(y, integer);
  llvm::Value* tie = is_max ? b.CreateAnd(x_bits, y_bits) : b.CreateOr(x_bits, y_bits);
  return b.CreateSelect(b.CreateFCmpOEQ(x, y), b.CreateBitCast(tie, x->getType()), b.CreateSelect(take_first, x, y));
}

// Emits maximum, minimum and clamp of f16. Returns null for other opcodes.
llvm::Value* HalfExtremum(Ir& ir, Opcode opcode, Operands x) {
  if (opcode == Opcode::kMaximum) return Extremum(ir, true, x[0], x[1]);
  if (opcode == Opcode::kMinimum) return Extremum(ir, false, x[0], x[1]);
  if (opcode == Opcode::kClamp) return Extremum(ir, false, Extremum(ir, true, x[1], x[0]), x[2]);
  return nullptr;
}

struct FloatRule {
  FloatOp emit;
  bool exact;  // Whether results need no rounding to the operands' type.
};

const std::map<Opcode, FloatRule>& FloatRules() {
  static const auto* const rules = new std::map<Opcode, FloatRule>{
      {Opcode::kAbs, {UnaryIntrinsic<llvm::Intrinsic::fabs>, true}},
      {Opcode::kNegate, {[](Ir& ir, Operands x) { return ir.b.CreateFNeg(x[0]); }, true}},
      {Opcode::kCeil, {UnaryIntrinsic<llvm::Intrinsic::ceil>, true}},
      {Opcode::kFloor, {UnaryIntrinsic<llvm::Intrinsic::floor>, true}},
      {Opcode::kRoundNearestAfz, {UnaryIntrinsic<llvm::Intrinsic::round>, true}},
      {Opcode::kRoundNearestEven, {UnaryIntrinsic<llvm::Intrinsic::roundeven>, true}},
      {Opcode::kSign, {Sign, true}},
      {Opcode::kReal, {[](Ir&, Operands x) { return x[0]; }, true}},
      {Opcode::kImag,
       {[](Ir&, Operands x) -> llvm::Value* { return llvm::ConstantFP::get(x[0]->getType(), 0.0); }, true}},
      {Opcode::kAdd, {[](Ir& ir, Operands x) { return ir.b.CreateFAdd(x[0], x[1]); }, false}},
      {Opcode::kSubtract, {[](Ir& ir, Operands x) { return ir.b.CreateFSub(x[0], x[1]); }, false}},
      {Opcode::kMultiply, {[](Ir& ir, Operands x) { return ir.b.CreateFMul(x[0], x[1]); }, false}},
      {Opcode::kDivide, {[](Ir& ir, Operands x) { return ir.b.CreateFDiv(x[0], x[1]); }, false}},
      {Opcode::kRemainder, {[](Ir& ir, Operands x) { return EmitRemainder(ir, x[0], x[1]); }, false}},
      {Opcode::kPower, {[](Ir& ir, Operands x) { return EmitPower(ir, x[0], x[1]); }, false}},
      {Opcode::kAtan2, {[](Ir& ir, Operands x) { return EmitAtan2(ir, x[0], x[1]); }, false}},
      {Opcode::kMaximum, {BinaryIntrinsic<llvm::Intrinsic::maximum>, true}},
      {Opcode::kMinimum, {BinaryIntrinsic<llvm::Intrinsic::minimum>, true}},
      {Opcode::kClamp, {Clamp, true}},
      {Opcode::kIsFinite,
       {[](Ir& ir, Operands x) {
          llvm::Value* infinity = llvm::ConstantFP::getInfinity(x[0]->getType());
          llvm::Value* size = ir.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x[0]);
          return ir.b.CreateFCmpONE(size, infinity);
        },
        true}},
      {Opcode::kComplex, {[](Ir& ir, Operands x) { return MakeComplex(ir.b, x[0], x[1]); }, true}},
  };
  return *rules;
}

// The opcodes of EmitTypeless, which are not in the table of a class of types.
bool IsTypeless(Opcode opcode) {
  return opcode == Opcode::kSelect || opcode == Opcode::kCopy || opcode == Opcode::kConvert ||
         opcode == Opcode::kBitcastConvert || opcode == Opcode::kCompare || opcode == Opcode::kReducePrecision ||
         opcode == Opcode::kStochasticConvert;
}

ElementType OperandType(const hlo::Instruction& instruction) {
  // The first operand of a select is its predicate.
  return instruction.operand(instruction.opcode() == Opcode::kSelect ? 1 : 0)->shape().type();
}

bool HasTypelessOp(const hlo::Instruction& instruction, ElementType type) {
  switch (instruction.opcode()) {
    // Only for types of equal widths. If the widths differ, the shape changes: see index_rules.cc.
    case Opcode::kBitcastConvert:
      return tensor::BitWidth(type) == tensor::BitWidth(instruction.shape().type());
    case Opcode::kReducePrecision:
      return tensor::IsFloating(type);
    case Opcode::kStochasticConvert:
      return tensor::IsFloating(type) && tensor::IsInteger(instruction.shape().type());
    default:
      return true;
  }
}

llvm::Value* EmitTypeless(Ir& ir, const hlo::Instruction& instruction, ElementType type, Operands x) {
  const ElementType result = instruction.shape().type();
  switch (instruction.opcode()) {
    case Opcode::kSelect:
      return ir.b.CreateSelect(x[0], x[1], x[2]);
    case Opcode::kConvert:
      return EmitConvert(ir, type, result, x[0]);
    case Opcode::kBitcastConvert:
      return FromBits(ir.b, result, ToBits(ir.b, type, x[0]));
    case Opcode::kCompare:
      return EmitCompare(ir, type, instruction.attributes(), x[0], x[1]);
    case Opcode::kReducePrecision:
      return EmitReducePrecision(ir, type, instruction.attributes(), x[0]);
    case Opcode::kStochasticConvert:
      return EmitStochasticConvert(ir, type, result, x[0], x[1]);
    default:
      return x[0];
  }
}

}  // namespace

bool HasScalarOp(Opcode opcode) {
  return IsTypeless(opcode) || FloatRules().contains(opcode) || HasMathFunction(opcode) || HasComplexOp(opcode) ||
         HasIntegerOp(opcode, ElementType::kU32);
}

bool HasScalarOp(const hlo::Instruction& instruction) {
  const Opcode opcode = instruction.opcode();
  if (!hlo::IsElementwise(opcode) && opcode != Opcode::kCopy) return false;
  if (!instruction.shape().is_array()) return false;
  const ElementType type = OperandType(instruction);
  if (IsTypeless(opcode)) return HasTypelessOp(instruction, type);
  if (tensor::IsComplex(type)) return HasComplexOp(opcode);
  if (tensor::IsFloating(type)) return FloatRules().contains(opcode) || HasMathFunction(opcode);
  return HasIntegerOp(opcode, type);
}

llvm::Value* EmitScalarOp(Ir& ir, const hlo::Instruction& instruction, Operands x) {
  const Opcode opcode = instruction.opcode();
  const ElementType type = OperandType(instruction);
  if (IsTypeless(opcode)) return EmitTypeless(ir, instruction, type, x);
  if (tensor::IsComplex(type)) return EmitComplexOp(ir, opcode, x);
  if (!tensor::IsFloating(type)) return EmitIntegerOp(ir, opcode, type, x);
  if (type == ElementType::kF16) {
    llvm::Value* extremum = HalfExtremum(ir, opcode, x);
    if (extremum != nullptr) return extremum;
  }
  const auto rule = FloatRules().find(opcode);
  if (rule == FloatRules().end()) return RoundTo(ir.b, type, EmitMath(ir, opcode, x[0]));
  llvm::Value* value = rule->second.emit(ir, x);
  return rule->second.exact ? value : RoundTo(ir.b, type, value);
}

}  // namespace xlad::compiler
