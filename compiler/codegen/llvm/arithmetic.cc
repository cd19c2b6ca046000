#include "compiler/codegen/llvm/arithmetic.h"

#include <llvm/IR/Intrinsics.h>

#include "compiler/codegen/llvm/complex_ops.h"
#include "compiler/codegen/llvm/convert_ops.h"

namespace xlad::compiler {

using hlo::Opcode;

llvm::Value* Wide::FromNarrow(llvm::Value* x) const { return EmitConvert(ir_, narrow_, type_, x); }
llvm::Value* Wide::ToNarrow(llvm::Value* x) const { return EmitConvert(ir_, type_, narrow_, x); }

llvm::Value* Wide::Number(double value) const { return FromReal(llvm::ConstantFP::get(b_.getDoubleTy(), value)); }

llvm::Value* Wide::Add(llvm::Value* x, llvm::Value* y) const {
  return is_complex() ? EmitComplexOp(ir_, Opcode::kAdd, {x, y}) : b_.CreateFAdd(x, y);
}

llvm::Value* Wide::Subtract(llvm::Value* x, llvm::Value* y) const {
  return is_complex() ? EmitComplexOp(ir_, Opcode::kSubtract, {x, y}) : b_.CreateFSub(x, y);
}

llvm::Value* Wide::Multiply(llvm::Value* x, llvm::Value* y) const {
  return is_complex() ? EmitComplexOp(ir_, Opcode::kMultiply, {x, y}) : b_.CreateFMul(x, y);
}

llvm::Value* Wide::Divide(llvm::Value* x, llvm::Value* y) const {
  return is_complex() ? EmitComplexOp(ir_, Opcode::kDivide, {x, y}) : b_.CreateFDiv(x, y);
}

llvm::Value* Wide::Conjugate(llvm::Value* x) const {
  return is_complex() ? MakeComplex(b_, Real(b_, x), b_.CreateFNeg(Imag(b_, x))) : x;
}

llvm::Value* Wide::RealPartOf(llvm::Value* x) const { return is_complex() ? Real(b_, x) : x; }

llvm::Value* Wide::FromReal(llvm::Value* real) const {
  return is_complex() ? MakeComplex(b_, real, llvm::ConstantFP::get(b_.getDoubleTy(), 0.0)) : real;
}

llvm::Value* Wide::Sqrt(llvm::Value* real) const { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, real); }

}  // namespace xlad::compiler
