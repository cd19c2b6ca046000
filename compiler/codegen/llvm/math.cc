// Elementary functions on f32 and f64 values.
//
// The polynomials are minimax fits of the relative error, computed for xlad by Lawson's iteration on Chebyshev nodes.
// tests/compiled/math_test.cc has the error bound of each function, in units in the last place (ulp).
#include "compiler/codegen/llvm/math.h"

#include <llvm/IR/Intrinsics.h>

#include <map>

#include "compiler/codegen/llvm/float_ir.h"

namespace xlad::compiler {
namespace {

using hlo::Opcode;

// x = n ln 2 + r with |r| <= ln 2 / 2; `grown` is e^r - 1. NaN stays NaN in r.
struct ExpParts {
  llvm::Value* n;  // i32
  llvm::Value* grown;
};

ExpParts ReduceExp(const Float& f, llvm::Value* x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const double magic = 12582912.0;
  llvm::Value* shifted = f.Fma(x, f.C(1.4426950408889634), f.C(magic));
  llvm::Value* n = f.b.CreateSub(f.Bits(shifted), f.Bits(f.C(magic)));
  llvm::Value* rounded = f.b.CreateFSub(shifted, f.C(magic));
  // ln 2 in two parts, the first with trailing zeros.
  llvm::Value* r = f.Fma(rounded, f.C(-0.693145751953125), x);
  r = f.Fma(rounded, f.C(-1.428606765330187e-06), r);
  llvm::Value* q =
      f.Polynomial(r, {5.0000000952e-01, 1.6666518837e-01, 4.1666205829e-02, 8.3688895581e-03, 1.3950489160e-03});
  return {n, f.Fma(f.b.CreateFMul(r, r), q, r)};
}

llvm::Value* ClampTo(const Float& f, llvm::Value* x, double lo, double hi) {
  x = f.Select(f.b.CreateFCmpOGT(x, f.C(hi)), f.C(hi), x);
  return f.Select(f.b.CreateFCmpOLT(x, f.C(lo)), f.C(lo), x);
}

// Arguments beyond the clamps have the result 0 or infinity. The result is scaled by two factors, because 2^n may not
// be a normal number. Only the second product can be denormal, so a denormal result is rounded once. Below -104, the
// result is 0 and the first factor is set to 0, because many CPUs take about a hundred cycles for a product that is
// rounded to 0. Masked scores of attention are such arguments.
llvm::Value* Exp(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  const ExpParts parts = ReduceExp(f, ClampTo(f, x, -105, 89));
  llvm::Value* half = f.b.CreateAShr(parts.n, 1);
  llvm::Value* first = f.Select(f.b.CreateFCmpOLT(x, f.C(-104)), f.C(0), f.PowerOfTwo(half));
  llvm::Value* second = f.PowerOfTwo(f.b.CreateSub(parts.n, half));
  llvm::Value* value = f.b.CreateFAdd(parts.grown, f.C(1));
  return f.b.CreateFMul(f.b.CreateFMul(value, first), second);
}

// e^x for x in [-80, 80], where 2^n can be added to the exponent because no result is denormal or infinite. Has the
// bits of Exp. The result for NaN is not specified.
llvm::Value* ExpOfSmall(const Float& f, llvm::Value* x) {
  const ExpParts parts = ReduceExp(f, x);
  llvm::Value* value = f.b.CreateFAdd(parts.grown, f.C(1));
  return f.FromBits(f.b.CreateAdd(f.Bits(value), f.b.CreateShl(parts.n, 23)));
}

llvm::Value* ExpM1(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  const ExpParts parts = ReduceExp(f, ClampTo(f, x, -25, 89));
  // 2^n grown + (2^n - 1), computed from halves because 2^128 overflows.
  llvm::Value* half = f.PowerOfTwo(f.b.CreateSub(parts.n, f.b.getInt32(1)));
  llvm::Value* value = f.Fma(half, parts.grown, f.b.CreateFSub(half, f.C(0.5)));
  // Zeros keep their sign.
  return f.Select(f.b.CreateFCmpOEQ(x, f.C(0)), x, f.b.CreateFAdd(value, value));
}

llvm::Value* Log(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  // Scales denormal numbers to normal ones first.
  llvm::Value* tiny = f.b.CreateFCmpOLT(x, f.C(1.17549435e-38));
  llvm::Value* scaled = f.Select(tiny, f.b.CreateFMul(x, f.C(8388608.0)), x);
  llvm::Value* bias = f.Select(tiny, f.C(-23), f.C(0));
  // scaled = 2^e m with m in [sqrt(1/2), sqrt(2)).
  llvm::Value* offset = f.b.CreateSub(f.Bits(scaled), f.b.getInt32(0x3f3504f3));
  llvm::Value* e = f.b.CreateAShr(offset, 23);
  llvm::Value* m = f.FromBits(f.b.CreateSub(f.Bits(scaled), f.b.CreateShl(e, 23)));
  llvm::Value* exponent = f.b.CreateFAdd(f.b.CreateSIToFP(e, f.b.getFloatTy()), bias);
  llvm::Value* z = f.b.CreateFSub(m, f.C(1));
  llvm::Value* square = f.b.CreateFMul(z, z);
  llvm::Value* q =
      f.Polynomial(z, {3.3333312603e-01, -2.5000009604e-01, 2.0002118732e-01, -1.6667995667e-01, 1.4219550908e-01,
                       -1.2405591416e-01, 1.1888174596e-01, -1.1675641310e-01, 6.7466013415e-02});
  llvm::Value* tail = f.b.CreateFMul(f.b.CreateFMul(square, z), q);
  tail = f.Fma(exponent, f.C(-2.12194440e-4), tail);
  tail = f.Fma(square, f.C(-0.5), tail);
  llvm::Value* log = f.Fma(exponent, f.C(0.693359375), f.b.CreateFAdd(z, tail));
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(f.b.getFloatTy());
  log = f.Select(f.b.CreateFCmpOLT(x, infinity), log, x);  // For infinity and NaN, the result is x.
  log = f.Select(f.b.CreateFCmpOLT(x, f.C(0)), llvm::ConstantFP::getNaN(f.b.getFloatTy()), log);
  return f.Select(f.b.CreateFCmpOEQ(x, f.C(0)), llvm::ConstantFP::getInfinity(f.b.getFloatTy(), true), log);
}

// log(u) with u = 1 + x rounded, corrected by the rounding error of u.
llvm::Value* Log1p(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  llvm::Value* u = f.b.CreateFAdd(x, f.C(1));
  llvm::Value* log = Log(ir, u);
  llvm::Value* lost = f.b.CreateFSub(x, f.b.CreateFSub(u, f.C(1)));
  llvm::Value* corrected = f.b.CreateFAdd(log, f.b.CreateFDiv(lost, u));
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(f.b.getFloatTy());
  llvm::Value* inside = f.b.CreateAnd(f.b.CreateFCmpOGT(u, f.C(0)), f.b.CreateFCmpOLT(u, infinity));
  llvm::Value* value = f.Select(inside, corrected, log);
  return f.Select(f.b.CreateFCmpOEQ(x, f.C(0)), x, value);
}

llvm::Value* Erf(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  llvm::Value* size = f.Abs(x);
  llvm::Value* square = f.b.CreateFMul(x, x);
  llvm::Value* q = f.Polynomial(square, {1.283791659e-01, -3.7612627136e-01, 1.1283600176e-01, -2.6854444592e-02,
                                         5.1895353398e-03, -8.0208412839e-04, 7.8891195460e-05});
  llvm::Value* near = f.Fma(x, q, x);
  // 1 - e^p(|x|), where p approximates the logarithm of 1 - erf. Beyond 4 the result rounds to 1.
  llvm::Value* clamped = f.Select(f.b.CreateFCmpOGT(size, f.C(4)), f.C(4), size);
  llvm::Value* p = f.Polynomial(clamped, {1.8803183739e-04, -1.1295783850e+00, -6.3321997042e-01, -1.0841849419e-01,
                                          2.5208204080e-02, -4.2045422398e-03, 4.4133238796e-04, -2.1686509373e-05});
  llvm::Value* far = f.b.CreateFSub(f.C(1), ExpOfSmall(f, p));
  far = f.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, far, x);
  return f.Select(f.b.CreateFCmpOGE(size, f.C(1)), far, near);  // `near` is NaN for NaN.
}

llvm::Value* Tanh(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  llvm::Value* size = f.Abs(x);
  llvm::Value* square = f.b.CreateFMul(x, x);
  llvm::Value* q = f.Polynomial(
      square, {-3.3333283924e-01, 1.3331491249e-01, -5.3743495261e-02, 2.0650579003e-02, -5.7170365603e-03});
  llvm::Value* near = f.Fma(f.b.CreateFMul(square, x), q, x);
  // Beyond 10 the result rounds to 1.
  llvm::Value* clamped = f.Select(f.b.CreateFCmpOGT(size, f.C(10)), f.C(10), size);
  llvm::Value* grown = ExpOfSmall(f, f.b.CreateFAdd(clamped, clamped));
  llvm::Value* far = f.b.CreateFSub(f.C(1), f.b.CreateFDiv(f.C(2), f.b.CreateFAdd(grown, f.C(1))));
  far = f.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, far, x);
  return f.Select(f.b.CreateFCmpOGE(size, f.C(0.625)), far, near);  // `near` is NaN for NaN.
}

// For f32 and f64: t / (1 + t) or 1 / (1 + t) with t = e^-|x|, which does not overflow.
llvm::Value* Logistic(Ir& ir, llvm::Value* x) {
  llvm::Type* type = x->getType();
  llvm::Value* one = llvm::ConstantFP::get(type, 1.0);
  llvm::Value* size = ir.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  llvm::Value* t = EmitMath(ir, Opcode::kExponential, ir.b.CreateFNeg(size));
  llvm::Value* negative = ir.b.CreateFCmpOLT(x, llvm::ConstantFP::get(type, 0.0));
  return ir.b.CreateFDiv(ir.b.CreateSelect(negative, t, one), ir.b.CreateFAdd(one, t));
}

llvm::Value* Sqrt(Ir& ir, llvm::Value* x) { return ir.b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }

llvm::Value* Rsqrt(Ir& ir, llvm::Value* x) {
  return ir.b.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0), Sqrt(ir, x));
}

using MathFunction = llvm::Value* (*)(Ir& ir, llvm::Value* x);
struct InlineMath {
  MathFunction f32;
  MathFunction f64;  // If null, the C library is called.
};

const std::map<Opcode, InlineMath>& InlineFunctions() {
  static const auto* const functions = new std::map<Opcode, InlineMath>{
      {Opcode::kExponential, {Exp, nullptr}},
      {Opcode::kExponentialMinusOne, {ExpM1, nullptr}},
      {Opcode::kLog, {Log, nullptr}},
      {Opcode::kLogPlusOne, {Log1p, nullptr}},
      {Opcode::kTanh, {Tanh, nullptr}},
      {Opcode::kErf, {Erf, nullptr}},
      {Opcode::kSine, {EmitSineF32, nullptr}},
      {Opcode::kCosine, {EmitCosineF32, nullptr}},
      {Opcode::kLogistic, {Logistic, Logistic}},
      {Opcode::kSqrt, {Sqrt, Sqrt}},
      {Opcode::kRsqrt, {Rsqrt, Rsqrt}},
  };
  return *functions;
}

struct CFunction {
  const char* f32;
  const char* f64;
};

const std::map<Opcode, CFunction>& CFunctions() {
  static const auto* const functions = new std::map<Opcode, CFunction>{
#define XLAD_C_MATH(opcode, types, function) {Opcode::k##opcode, {#function "f", #function}},
#include "hlo/c_math.def"
#undef XLAD_C_MATH
  };
  return *functions;
}

llvm::Value* CallBinary(Ir& ir, const char* f32, const char* f64, llvm::Value* x, llvm::Value* y) {
  return ir.CallLibm(x->getType()->isDoubleTy() ? f64 : f32, {x, y});
}

}  // namespace

bool HasMathFunction(Opcode opcode) { return InlineFunctions().contains(opcode) || CFunctions().contains(opcode); }

llvm::Value* EmitMath(Ir& ir, Opcode opcode, llvm::Value* x) {
  const bool is_double = x->getType()->isDoubleTy();
  const auto found = InlineFunctions().find(opcode);
  const MathFunction inlined =
      found == InlineFunctions().end() ? nullptr : (is_double ? found->second.f64 : found->second.f32);
  if (inlined != nullptr) return inlined(ir, x);
  const CFunction& function = CFunctions().at(opcode);
  return ir.CallLibm(is_double ? function.f64 : function.f32, {x});
}

llvm::Value* EmitPower(Ir& ir, llvm::Value* x, llvm::Value* y) {
  if (x->getType()->isDoubleTy()) return ir.CallLibm("pow", {x, y});
  // Squares are common, and one multiplication rounds them correctly.
  const auto* constant = llvm::dyn_cast<llvm::ConstantFP>(y);
  if (constant != nullptr && constant->isExactlyValue(2.0)) return ir.b.CreateFMul(x, x);
  if (constant != nullptr && constant->isExactlyValue(1.0)) return x;
  return EmitPowerF32(ir, x, y);
}
llvm::Value* EmitAtan2(Ir& ir, llvm::Value* y, llvm::Value* x) { return CallBinary(ir, "atan2f", "atan2", y, x); }
llvm::Value* EmitRemainder(Ir& ir, llvm::Value* x, llvm::Value* y) { return CallBinary(ir, "fmodf", "fmod", x, y); }

}  // namespace xlad::compiler
