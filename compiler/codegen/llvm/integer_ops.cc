// Elementwise opcodes on integers and booleans.
#include "compiler/codegen/llvm/integer_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <map>

namespace xlad::compiler {
namespace {

using hlo::Opcode;
using tensor::ElementType;
using Operands = absl::Span<llvm::Value* const>;
// `is_signed` is whether the bits are signed numbers.
using IntegerOp = llvm::Value* (*)(Ir& ir, bool is_signed, Operands x);

llvm::Value* Constant(llvm::Value* like, uint64_t value) { return llvm::ConstantInt::get(like->getType(), value); }
llvm::Value* AllOnes(llvm::Value* like) { return llvm::Constant::getAllOnesValue(like->getType()); }

unsigned Width(llvm::Value* x) { return x->getType()->getIntegerBitWidth(); }

llvm::Value* IsZero(Ir& ir, llvm::Value* x) { return ir.b.CreateICmpEQ(x, Constant(x, 0)); }

// Whether x[0] is the smallest signed number and x[1] is -1: their quotient overflows.
llvm::Value* Overflows(Ir& ir, Operands x) {
  llvm::Value* smallest = llvm::ConstantInt::get(x[0]->getType(), llvm::APInt::getSignedMinValue(Width(x[0])));
  return ir.b.CreateAnd(ir.b.CreateICmpEQ(x[0], smallest), ir.b.CreateICmpEQ(x[1], AllOnes(x[1])));
}

llvm::Value* Divide(Ir& ir, bool is_signed, Operands x) {
  llvm::Value* is_zero = IsZero(ir, x[1]);
  if (!is_signed) {
    llvm::Value* safe = ir.b.CreateSelect(is_zero, Constant(x[1], 1), x[1]);
    return ir.b.CreateSelect(is_zero, AllOnes(x[0]), ir.b.CreateUDiv(x[0], safe));
  }
  llvm::Value* overflows = Overflows(ir, x);
  llvm::Value* safe = ir.b.CreateSelect(ir.b.CreateOr(is_zero, overflows), Constant(x[1], 1), x[1]);
  return ir.b.CreateSelect(is_zero, AllOnes(x[0]), ir.b.CreateSDiv(x[0], safe));
}

llvm::Value* Remainder(Ir& ir, bool is_signed, Operands x) {
  llvm::Value* is_zero = IsZero(ir, x[1]);
  if (!is_signed) {
    llvm::Value* safe = ir.b.CreateSelect(is_zero, Constant(x[1], 1), x[1]);
    return ir.b.CreateSelect(is_zero, x[0], ir.b.CreateURem(x[0], safe));
  }
  llvm::Value* overflows = Overflows(ir, x);
  llvm::Value* safe = ir.b.CreateSelect(ir.b.CreateOr(is_zero, overflows), Constant(x[1], 1), x[1]);
  // The divisor -1 is replaced by 1, which has the same remainder and no overflow.
  return ir.b.CreateSelect(is_zero, x[0], ir.b.CreateSRem(x[0], safe));
}

// Exponentiation by squaring. With a negative exponent, powers of 1 and -1 are 1 or -1, and all other powers are 0.
llvm::Value* Power(Ir& ir, bool is_signed, Operands x) {
  IrBuilder& b = ir.b;
  llvm::Type* type = x[0]->getType();
  llvm::Value* base = ir.Slot(type);
  llvm::Value* rest = ir.Slot(type);
  llvm::Value* power = ir.Slot(type);
  b.CreateStore(x[0], base);
  b.CreateStore(x[1], rest);
  b.CreateStore(Constant(x[0], 1), power);
  ir.While([&] { return b.CreateICmpNE(b.CreateLoad(type, rest), Constant(x[0], 0)); },
           [&] {
             llvm::Value* value = b.CreateLoad(type, base);
             llvm::Value* bits = b.CreateLoad(type, rest);
             llvm::Value* so_far = b.CreateLoad(type, power);
             llvm::Value* odd = b.CreateTrunc(bits, b.getInt1Ty());
             b.CreateStore(b.CreateSelect(odd, b.CreateMul(so_far, value), so_far), power);
             b.CreateStore(b.CreateMul(value, value), base);
             b.CreateStore(b.CreateLShr(bits, 1), rest);
           });
  llvm::Value* result = b.CreateLoad(type, power);
  if (!is_signed) return result;
  llvm::Value* one = Constant(x[0], 1);
  llvm::Value* is_odd = b.CreateTrunc(x[1], b.getInt1Ty());
  llvm::Value* of_minus_one = b.CreateSelect(is_odd, AllOnes(x[0]), one);
  llvm::Value* inverse = b.CreateSelect(b.CreateICmpEQ(x[0], one), one, Constant(x[0], 0));
  inverse = b.CreateSelect(b.CreateICmpEQ(x[0], AllOnes(x[0])), of_minus_one, inverse);
  return b.CreateSelect(b.CreateICmpSLT(x[1], Constant(x[1], 0)), inverse, result);
}

enum class Shift { kLeft, kRightLogical, kRightArithmetic };

template <Shift kind>
llvm::Value* EmitShift(Ir& ir, bool, Operands x) {
  IrBuilder& b = ir.b;
  const unsigned width = Width(x[0]);
  llvm::Value* fits = width == 1 ? IsZero(ir, x[1]) : b.CreateICmpULT(x[1], Constant(x[1], width));
  llvm::Value* safe = b.CreateSelect(fits, x[1], Constant(x[1], 0));
  if (kind == Shift::kLeft) return b.CreateSelect(fits, b.CreateShl(x[0], safe), Constant(x[0], 0));
  if (kind == Shift::kRightLogical) return b.CreateSelect(fits, b.CreateLShr(x[0], safe), Constant(x[0], 0));
  llvm::Value* amount = b.CreateSelect(fits, x[1], Constant(x[1], width - 1));
  return b.CreateAShr(x[0], amount);
}

llvm::Value* Max(Ir& ir, bool is_signed, Operands x) {
  return ir.b.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, x[0], x[1]);
}

llvm::Value* Min(Ir& ir, bool is_signed, Operands x) {
  return ir.b.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, x[0], x[1]);
}

llvm::Value* Sign(Ir& ir, bool is_signed, Operands x) {
  llvm::Value* positive = ir.b.CreateSelect(IsZero(ir, x[0]), Constant(x[0], 0), Constant(x[0], 1));
  if (!is_signed) return positive;
  return ir.b.CreateSelect(ir.b.CreateICmpSLT(x[0], Constant(x[0], 0)), AllOnes(x[0]), positive);
}

llvm::Value* MultiplyHigh(Ir& ir, bool is_signed, Operands x) {
  const unsigned width = Width(x[0]);
  llvm::Type* wide = ir.b.getIntNTy(2 * width);
  const auto widen = [&](llvm::Value* v) { return is_signed ? ir.b.CreateSExt(v, wide) : ir.b.CreateZExt(v, wide); };
  llvm::Value* product = ir.b.CreateMul(widen(x[0]), widen(x[1]));
  return ir.b.CreateTrunc(ir.b.CreateLShr(product, width), x[0]->getType());
}

const std::map<Opcode, IntegerOp>& IntegerOps() {
  static const auto* const ops = new std::map<Opcode, IntegerOp>{
      {Opcode::kAbs,
       [](Ir& ir, bool is_signed, Operands x) -> llvm::Value* {
         return is_signed ? ir.b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x[0], ir.b.getFalse()) : x[0];
       }},
      {Opcode::kNegate, [](Ir& ir, bool, Operands x) { return ir.b.CreateNeg(x[0]); }},
      {Opcode::kNot, [](Ir& ir, bool, Operands x) { return ir.b.CreateNot(x[0]); }},
      {Opcode::kSign, Sign},
      {Opcode::kPopcnt,
       [](Ir& ir, bool, Operands x) -> llvm::Value* {
         return ir.b.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, x[0]);
       }},
      {Opcode::kCountLeadingZeros,
       [](Ir& ir, bool, Operands x) -> llvm::Value* {
         return ir.b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, x[0], ir.b.getFalse());
       }},
      {Opcode::kAdd, [](Ir& ir, bool, Operands x) { return ir.b.CreateAdd(x[0], x[1]); }},
      {Opcode::kSubtract, [](Ir& ir, bool, Operands x) { return ir.b.CreateSub(x[0], x[1]); }},
      {Opcode::kMultiply, [](Ir& ir, bool, Operands x) { return ir.b.CreateMul(x[0], x[1]); }},
      {Opcode::kDivide, Divide},
      {Opcode::kRemainder, Remainder},
      {Opcode::kPower, Power},
      {Opcode::kMaximum, Max},
      {Opcode::kMinimum, Min},
      {Opcode::kClamp,
       [](Ir& ir, bool is_signed, Operands x) {
         llvm::Value* raised = Max(ir, is_signed, {x[0], x[1]});
         return Min(ir, is_signed, {raised, x[2]});
       }},
      {Opcode::kAnd, [](Ir& ir, bool, Operands x) { return ir.b.CreateAnd(x[0], x[1]); }},
      {Opcode::kOr, [](Ir& ir, bool, Operands x) { return ir.b.CreateOr(x[0], x[1]); }},
      {Opcode::kXor, [](Ir& ir, bool, Operands x) { return ir.b.CreateXor(x[0], x[1]); }},
      {Opcode::kShiftLeft, EmitShift<Shift::kLeft>},
      {Opcode::kShiftRightLogical, EmitShift<Shift::kRightLogical>},
      {Opcode::kShiftRightArithmetic, EmitShift<Shift::kRightArithmetic>},
      {Opcode::kMulhi, MultiplyHigh},
  };
  return *ops;
}

// The logical opcode that computes the same result on pred.
Opcode BooleanOpcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAdd:
    case Opcode::kMaximum:
      return Opcode::kOr;
    case Opcode::kMultiply:
    case Opcode::kMinimum:
      return Opcode::kAnd;
    default:
      return opcode;
  }
}

}  // namespace

bool HasIntegerOp(Opcode opcode, ElementType type) {
  if (type == ElementType::kPred) {
    const Opcode logic = BooleanOpcode(opcode);
    return logic == Opcode::kAnd || logic == Opcode::kOr || logic == Opcode::kXor || logic == Opcode::kNot ||
           logic == Opcode::kClamp;
  }
  return tensor::IsInteger(type) && IntegerOps().contains(opcode);
}

llvm::Value* EmitIntegerOp(Ir& ir, Opcode opcode, ElementType type, Operands x) {
  if (type == ElementType::kPred) opcode = BooleanOpcode(opcode);
  return IntegerOps().at(opcode)(ir, tensor::IsSigned(type), x);
}

}  // namespace xlad::compiler
