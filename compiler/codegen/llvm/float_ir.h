// Short names for f32 arithmetic in LLVM IR, and the f32 functions that math.cc takes from other files.
#pragma once

#include <llvm/IR/Intrinsics.h>

#include <initializer_list>
#include <iterator>

#include "compiler/codegen/llvm/ir.h"

namespace xlad::compiler {

// Short names for floating-point arithmetic in LLVM IR.
class Float {
 public:
  explicit Float(Ir& ir) : b(ir.b) {}
  IrBuilder& b;

  llvm::Value* C(double value) const { return llvm::ConstantFP::get(b.getFloatTy(), value); }
  llvm::Value* Abs(llvm::Value* x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  // x * y + z, rounded once if the target has a fused instruction, else twice.
  llvm::Value* Fma(llvm::Value* x, llvm::Value* y, llvm::Value* z) const {
    return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {b.getFloatTy()}, {x, y, z});
  }
  // c[0] + c[1] x + c[2] x^2 ...
  llvm::Value* Polynomial(llvm::Value* x, std::initializer_list<double> c) const {
    auto next = std::rbegin(c);
    llvm::Value* sum = C(*next++);
    for (; next != std::rend(c); ++next) sum = Fma(sum, x, C(*next));
    return sum;
  }
  llvm::Value* Bits(llvm::Value* x) const { return b.CreateBitCast(x, b.getInt32Ty()); }
  llvm::Value* FromBits(llvm::Value* x) const { return b.CreateBitCast(x, b.getFloatTy()); }
  llvm::Value* Select(llvm::Value* condition, llvm::Value* yes, llvm::Value* no) const {
    return b.CreateSelect(condition, yes, no);
  }
  // 2^n for an integer n in [-126, 127].
  llvm::Value* PowerOfTwo(llvm::Value* n) const { return FromBits(b.CreateShl(b.CreateAdd(n, b.getInt32(127)), 23)); }
};

llvm::Value* EmitSineF32(Ir& ir, llvm::Value* x);
llvm::Value* EmitCosineF32(Ir& ir, llvm::Value* x);
llvm::Value* EmitPowerF32(Ir& ir, llvm::Value* x, llvm::Value* y);

}  // namespace xlad::compiler
