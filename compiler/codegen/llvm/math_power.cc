// Powers of f32, computed in f64 as 2^(y log2 |x|), followed by the sign and the special cases of IEEE 754's pow.
#include <llvm/IR/Constants.h>

#include "compiler/codegen/llvm/float_ir.h"

namespace xlad::compiler {
namespace {

// log2 of a positive finite f64 that was converted from f32, and is therefore normal. The relative error is below
// 2^-43.
llvm::Value* Log2(const Double& d, llvm::Value* x) {
  IrBuilder& b = d.b;
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)); log2 m is computed as s q(s^2) with s = (m - 1) / (m + 1).
  llvm::Value* offset = b.CreateSub(d.Bits(x), b.getInt64(0x3fe6a09e667f3bcd));
  llvm::Value* e = b.CreateAShr(offset, 52);
  llvm::Value* m = d.FromBits(b.CreateSub(d.Bits(x), b.CreateShl(e, 52)));
  llvm::Value* s = b.CreateFDiv(b.CreateFSub(m, d.C(1)), b.CreateFAdd(m, d.C(1)));
  llvm::Value* q =
      d.Polynomial(b.CreateFMul(s, s), {2.88539008177784950e+00, 9.61796694114139705e-01, 5.77077942142643296e-01,
                                        4.12209274044434915e-01, 3.19904835172824697e-01, 2.82912155745964788e-01});
  // 32 bits are enough for exponents of f32, and convert faster than 64.
  llvm::Value* exponent = b.CreateSIToFP(b.CreateTrunc(e, b.getInt32Ty()), b.getDoubleTy());
  return d.Fma(s, q, exponent);
}

// 2^t for t in [-200, 200]. The relative error is below 2^-34.
llvm::Value* Exp2(const Double& d, llvm::Value* t) {
  IrBuilder& b = d.b;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  llvm::Value* shifted = b.CreateFAdd(t, d.C(magic));
  llvm::Value* n = b.CreateSub(d.Bits(shifted), d.Bits(d.C(magic)));
  llvm::Value* r = b.CreateFSub(t, b.CreateFSub(shifted, d.C(magic)));
  llvm::Value* p = d.Polynomial(
      r, {9.99999999959549912e-01, 6.93147180535026219e-01, 2.40226512135839093e-01, 5.55041097610450077e-02,
          9.61802560415753877e-03, 1.33334226501961688e-03, 1.54697316572076360e-04, 1.53164604995842391e-05});
  return b.CreateFMul(p, d.FromBits(b.CreateShl(b.CreateAdd(n, b.getInt64(1023)), 52)));
}

}  // namespace

llvm::Value* EmitPowerF32(Ir& ir, llvm::Value* x, llvm::Value* y) {
  const Float f(ir);
  const Double d(ir);
  IrBuilder& b = ir.b;
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(b.getDoubleTy());
  llvm::Value* wide_y = b.CreateFPExt(y, b.getDoubleTy());
  llvm::Value* size = b.CreateFPExt(f.Abs(x), b.getDoubleTy());
  llvm::Value* log = Log2(d, size);
  log = b.CreateSelect(b.CreateFCmpOEQ(size, d.C(0)), llvm::ConstantFP::getInfinity(b.getDoubleTy(), true), log);
  log = b.CreateSelect(b.CreateFCmpULT(size, infinity), log, size);
  log = b.CreateSelect(b.CreateFCmpUNO(size, size), size, log);
  llvm::Value* t = b.CreateFMul(wide_y, log);
  t = b.CreateSelect(b.CreateFCmpOGT(t, d.C(200)), d.C(200), t);
  t = b.CreateSelect(b.CreateFCmpOLT(t, d.C(-200)), d.C(-200), t);
  llvm::Value* is_nan = b.CreateFCmpUNO(t, t);
  llvm::Value* value = b.CreateFPTrunc(Exp2(d, b.CreateSelect(is_nan, d.C(0), t)), b.getFloatTy());
  value = f.Select(is_nan, llvm::ConstantFP::getNaN(b.getFloatTy()), value);
  // The power of a negative base is negative if the exponent is odd. The power of a finite negative base is a NaN if
  // the exponent is not an integer.
  const auto is_whole = [&](llvm::Value* v) {
    return b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, v), v);
  };
  llvm::Value* whole = is_whole(y);
  llvm::Value* odd = b.CreateAnd(whole, b.CreateNot(is_whole(b.CreateFMul(y, f.C(0.5)))));
  llvm::Value* sign = b.CreateAnd(f.Bits(x), b.getInt32(0x80000000u));
  value = f.Select(odd, f.FromBits(b.CreateOr(f.Bits(value), sign)), value);
  llvm::Value* negative = b.CreateFCmpOLT(x, f.C(0));
  llvm::Value* finite_base = b.CreateFCmpOLT(size, infinity);
  llvm::Value* no_power = b.CreateAnd(b.CreateAnd(negative, finite_base), b.CreateNot(whole));
  value = f.Select(no_power, llvm::ConstantFP::getNaN(b.getFloatTy()), value);
  // 1 to any power, any number to the power 0, and -1 to an infinite power are 1.
  llvm::Value* endless = b.CreateFCmpOEQ(f.Abs(y), llvm::ConstantFP::getInfinity(b.getFloatTy()));
  llvm::Value* unit = b.CreateAnd(b.CreateFCmpOEQ(f.Abs(x), f.C(1)), endless);
  llvm::Value* is_one = b.CreateOr(b.CreateFCmpOEQ(x, f.C(1)), b.CreateOr(b.CreateFCmpOEQ(y, f.C(0)), unit));
  return f.Select(is_one, f.C(1), value);
}

}  // namespace xlad::compiler
