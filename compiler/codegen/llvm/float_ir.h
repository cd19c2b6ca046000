// Short names for f32 and f64 arithmetic in LLVM IR, and the f32 functions that math.cc takes from other files.
#pragma once

#include <llvm/IR/Intrinsics.h>

#include <initializer_list>
#include <iterator>

#include "compiler/codegen/llvm/ir.h"

namespace xlad::compiler {

// Short names for floating-point arithmetic in LLVM IR, on single numbers or on vectors of them.
class FloatArithmetic {
 public:
  // `type` is a floating-point type or a vector of it.
  FloatArithmetic(IrBuilder& builder, llvm::Type* type) : b(builder), type_(type) {}
  IrBuilder& b;

  llvm::Value* C(double value) const { return llvm::ConstantFP::get(type_, value); }
  // `element`, or a vector of it with as many lanes as type_.
  llvm::Type* Of(llvm::Type* element) const { return type_->getWithNewType(element); }
  llvm::Value* Abs(llvm::Value* x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  // x * y + z, rounded once if the target has a fused instruction, and otherwise twice.
  llvm::Value* Fma(llvm::Value* x, llvm::Value* y, llvm::Value* z) const {
    return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {x->getType()}, {x, y, z});
  }
  // c[0] + c[1] x + c[2] x^2 ...
  llvm::Value* Polynomial(llvm::Value* x, std::initializer_list<double> c) const {
    auto next = std::rbegin(c);
    llvm::Value* sum = C(*next++);
    for (; next != std::rend(c); ++next) sum = Fma(sum, x, C(*next));
    return sum;
  }
  // Integers of the width of the numbers, with the same bits, and back.
  llvm::Value* Bits(llvm::Value* x) const { return b.CreateBitCast(x, Of(b.getIntNTy(type_->getScalarSizeInBits()))); }
  llvm::Value* FromBits(llvm::Value* x) const { return b.CreateBitCast(x, type_); }
  llvm::Value* Select(llvm::Value* condition, llvm::Value* yes, llvm::Value* no) const {
    return b.CreateSelect(condition, yes, no);
  }

 private:
  llvm::Type* type_;
};

// Arithmetic on f32.
class Float : public FloatArithmetic {
 public:
  explicit Float(Ir& ir) : Float(ir.b, ir.b.getFloatTy()) {}
  // `type` is float or a vector of floats.
  Float(IrBuilder& builder, llvm::Type* type) : FloatArithmetic(builder, type) {}

  llvm::Value* I(uint32_t value) const { return llvm::ConstantInt::get(Of(b.getInt32Ty()), value); }
  // 2^n for an integer n in [-126, 127].
  llvm::Value* PowerOfTwo(llvm::Value* n) const { return FromBits(b.CreateShl(b.CreateAdd(n, I(127)), 23)); }
};

// Arithmetic on f64.
class Double : public FloatArithmetic {
 public:
  explicit Double(Ir& ir) : FloatArithmetic(ir.b, ir.b.getDoubleTy()) {}
};

llvm::Value* EmitSineF32(Ir& ir, llvm::Value* x);
llvm::Value* EmitCosineF32(Ir& ir, llvm::Value* x);
llvm::Value* EmitPowerF32(Ir& ir, llvm::Value* x, llvm::Value* y);

}  // namespace xlad::compiler
