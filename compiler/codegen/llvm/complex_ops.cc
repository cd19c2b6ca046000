// Elementwise opcodes on complex numbers.
#include "compiler/codegen/llvm/complex_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "compiler/codegen/llvm/math.h"
#include "compiler/codegen/llvm/types.h"

namespace xlad::compiler {
namespace {

using hlo::Opcode;
using Operands = absl::Span<llvm::Value* const>;
using ComplexOp = llvm::Value* (*)(Ir& ir, Operands x);

// The real and imaginary parts of a complex number.
struct Number {
  llvm::Value* re;
  llvm::Value* im;
};

Number Split(Ir& ir, llvm::Value* x) { return {Real(ir.b, x), Imag(ir.b, x)}; }
llvm::Value* Join(Ir& ir, llvm::Value* re, llvm::Value* im) { return MakeComplex(ir.b, re, im); }
llvm::Value* Const(llvm::Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
llvm::Value* Fabs(Ir& ir, llvm::Value* x) { return ir.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

// sqrt(a^2 + b^2) without intermediate overflow.
llvm::Value* Hypot(Ir& ir, llvm::Value* a, llvm::Value* b) {
  return ir.CallLibm(a->getType()->isDoubleTy() ? "hypot" : "hypotf", {a, b});
}

llvm::Value* Scale(Ir& ir, llvm::Value* x, llvm::Value* factor) {
  return Join(ir, ir.b.CreateFMul(Real(ir.b, x), factor), ir.b.CreateFMul(Imag(ir.b, x), factor));
}

// A number times a power of four, so that sums of a few of its parts do not overflow and its modulus is not denormal.
struct ScaledNumber {
  llvm::Value* value;    // The number divided by `inverse`.
  llvm::Value* inverse;  // The factor that undoes the scaling: 4, 1, or a small power of four.
  llvm::Value* root;     // The square root of `inverse`.
  llvm::Value* log;      // The logarithm of `inverse`.
};

ScaledNumber Scaled(Ir& ir, llvm::Value* x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x);
  const bool is_double = z.re->getType()->isDoubleTy();
  const int digits = is_double ? std::numeric_limits<double>::digits : std::numeric_limits<float>::digits;
  const int max_exponent = is_double ? std::numeric_limits<double>::max_exponent
                                     : std::numeric_limits<float>::max_exponent;
  const auto either = [&](llvm::CmpInst::Predicate predicate, double bound) {
    return std::pair(b.CreateFCmp(predicate, Fabs(ir, z.re), Const(z.re, bound)),
                     b.CreateFCmp(predicate, Fabs(ir, z.im), Const(z.im, bound)));
  };
  const auto [large_re, large_im] = either(llvm::CmpInst::FCMP_OGE, std::ldexp(1.0, max_exponent - 2));
  const auto [small_re, small_im] = either(llvm::CmpInst::FCMP_OLT, std::ldexp(1.0, 2 * digits - max_exponent));
  llvm::Value* is_large = b.CreateOr(large_re, large_im);
  llvm::Value* is_small = b.CreateAnd(small_re, small_im);
  const auto choose = [&](double large, double small, double usual) {
    return b.CreateSelect(is_large, Const(z.re, large), b.CreateSelect(is_small, Const(z.re, small),
                                                                       Const(z.re, usual)));
  };
  return {Scale(ir, x, choose(0.25, std::ldexp(1.0, 2 * digits), 1)), choose(4, std::ldexp(1.0, -2 * digits), 1),
          choose(2, std::ldexp(1.0, -digits), 1), choose(2 * M_LN2, -2 * digits * M_LN2, 0)};
}

llvm::Value* Multiply(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number p = Split(ir, x[0]), q = Split(ir, x[1]);
  return Join(ir, b.CreateFSub(b.CreateFMul(p.re, q.re), b.CreateFMul(p.im, q.im)),
              b.CreateFAdd(b.CreateFMul(p.re, q.im), b.CreateFMul(p.im, q.re)));
}

// Smith's algorithm (1962): divides by the larger part of the denominator first. Both numbers are scaled, because sums
// of their parts may overflow.
llvm::Value* Divide(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const ScaledNumber above = Scaled(ir, x[0]), below = Scaled(ir, x[1]);
  const Number p = Split(ir, above.value), q = Split(ir, below.value);
  llvm::Value* swap = b.CreateFCmpOLT(Fabs(ir, q.re), Fabs(ir, q.im));
  llvm::Value* large = b.CreateSelect(swap, q.im, q.re);
  llvm::Value* small = b.CreateSelect(swap, q.re, q.im);
  llvm::Value* ratio = b.CreateFDiv(small, large);
  llvm::Value* scale = b.CreateFAdd(large, b.CreateFMul(small, ratio));
  llvm::Value* first = b.CreateSelect(swap, p.im, p.re);
  llvm::Value* second = b.CreateSelect(swap, p.re, p.im);
  llvm::Value* re = b.CreateFDiv(b.CreateFAdd(first, b.CreateFMul(second, ratio)), scale);
  llvm::Value* im = b.CreateFDiv(b.CreateFSub(second, b.CreateFMul(first, ratio)), scale);
  im = b.CreateSelect(swap, b.CreateFNeg(im), im);
  llvm::Value* unscale = b.CreateFDiv(above.inverse, below.inverse);
  re = b.CreateFMul(re, unscale);
  im = b.CreateFMul(im, unscale);
  // If the denominator is zero, both parts are divided by +0, so that they are infinite or NaN as for real numbers.
  llvm::Value* is_zero = b.CreateAnd(b.CreateFCmpOEQ(q.re, Const(q.re, 0)), b.CreateFCmpOEQ(q.im, Const(q.im, 0)));
  llvm::Value* plus_zero = Fabs(ir, q.re);
  return Join(ir, b.CreateSelect(is_zero, b.CreateFDiv(p.re, plus_zero), re),
              b.CreateSelect(is_zero, b.CreateFDiv(p.im, plus_zero), im));
}

// The real number first * rest * rest, which may be larger than the largest number.
struct Factors {
  llvm::Value* first;
  llvm::Value* rest;
  llvm::Value* is_far;  // Whether `rest` is not 1.
};

// e^x. If it may overflow, it has three factors, because its product with a small number may be finite. The largest x
// with a finite product is about 193 (f32) or 1455 (f64). Up to there, `first` is finite and its argument is exact.
Factors ExpFactors(Ir& ir, llvm::Value* x) {
  IrBuilder& b = ir.b;
  const bool is_double = x->getType()->isDoubleTy();
  const double step = is_double ? 374 : 53;
  llvm::Value* is_far = b.CreateFCmpOGT(x, Const(x, is_double ? 700 : 80));
  llvm::Value* reduced = b.CreateSelect(is_far, b.CreateFSub(x, Const(x, 2 * step)), x);
  llvm::Value* rest = b.CreateSelect(is_far, Const(x, std::exp(step)), Const(x, 1));
  return {EmitMath(ir, Opcode::kExponential, reduced), rest, is_far};
}

// x * number. If x is 0, the product is 0 even if the number is infinite.
llvm::Value* Product(Ir& ir, llvm::Value* x, const Factors& number) {
  IrBuilder& b = ir.b;
  llvm::Value* product = b.CreateFMul(b.CreateFMul(b.CreateFMul(x, number.rest), number.first), number.rest);
  llvm::Value* sign = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, Const(x, 1), number.first);
  return b.CreateSelect(b.CreateFCmpOEQ(x, Const(x, 0)), b.CreateFMul(x, sign), product);
}

llvm::Value* Exp(Ir& ir, Operands x) {
  const Number z = Split(ir, x[0]);
  const Factors modulus = ExpFactors(ir, z.re);
  return Join(ir, Product(ir, EmitMath(ir, Opcode::kCosine, z.im), modulus),
              Product(ir, EmitMath(ir, Opcode::kSine, z.im), modulus));
}

// log |x|. The modulus itself may be larger than the largest number.
llvm::Value* LogModulus(Ir& ir, llvm::Value* x) {
  const ScaledNumber scaled = Scaled(ir, x);
  const Number z = Split(ir, scaled.value);
  return ir.b.CreateFAdd(EmitMath(ir, Opcode::kLog, Hypot(ir, z.re, z.im)), scaled.log);
}

llvm::Value* Log(Ir& ir, Operands x) {
  const Number z = Split(ir, x[0]);
  return Join(ir, LogModulus(ir, x[0]), EmitAtan2(ir, z.im, z.re));
}

llvm::Value* Sqrt(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const ScaledNumber scaled = Scaled(ir, x[0]);
  const Number z = Split(ir, scaled.value);
  llvm::Value* modulus = Hypot(ir, z.re, z.im);
  // t = sqrt((|re| + |z|) / 2) has no cancellation; the other part is |im| / (2 t).
  llvm::Value* half = b.CreateFMul(b.CreateFAdd(Fabs(ir, z.re), modulus), Const(modulus, 0.5));
  llvm::Value* t = b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, half);
  llvm::Value* other = b.CreateFDiv(Fabs(ir, z.im), b.CreateFAdd(t, t));
  other = b.CreateSelect(b.CreateFCmpOEQ(t, Const(t, 0)), Const(t, 0), other);
  llvm::Value* right = b.CreateFCmpOGE(z.re, Const(z.re, 0));
  llvm::Value* re = b.CreateSelect(right, t, other);
  llvm::Value* im = b.CreateSelect(right, other, t);
  return Scale(ir, Join(ir, re, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, im, z.im)), scaled.root);
}

llvm::Value* Rsqrt(Ir& ir, Operands x) {
  llvm::Value* root = Sqrt(ir, x);
  llvm::Value* one = Const(Real(ir.b, root), 1);
  return Divide(ir, {Join(ir, one, Const(one, 0)), root});
}

llvm::Value* Power(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number p = Split(ir, x[0]), q = Split(ir, x[1]);
  llvm::Value* log = Log(ir, {x[0]});
  llvm::Value* value = Exp(ir, {Multiply(ir, {x[1], log})});
  llvm::Value* zero = Const(p.re, 0);
  llvm::Value* base_zero = b.CreateAnd(b.CreateFCmpOEQ(p.re, zero), b.CreateFCmpOEQ(p.im, zero));
  llvm::Value* power_zero = b.CreateAnd(b.CreateFCmpOEQ(q.re, zero), b.CreateFCmpOEQ(q.im, zero));
  llvm::Value* re = b.CreateSelect(base_zero, zero, Real(b, value));
  llvm::Value* im = b.CreateSelect(base_zero, zero, Imag(b, value));
  return Join(ir, b.CreateSelect(power_zero, Const(p.re, 1), re), b.CreateSelect(power_zero, zero, im));
}

// The power of two by which y and x of f64 are multiplied. The squares of their parts then do not overflow, and the
// square of the largest part is not denormal.
llvm::Value* ScaleOfSquares(Ir& ir, Number y, Number x) {
  IrBuilder& b = ir.b;
  llvm::Value* largest = Fabs(ir, y.re);
  for (llvm::Value* part : {y.im, x.re, x.im}) {
    llvm::Value* size = Fabs(ir, part);
    largest = b.CreateSelect(b.CreateFCmpOGT(size, largest), size, largest);
  }
  llvm::Value* is_large = b.CreateFCmpOGE(largest, Const(largest, 0x1p509));
  llvm::Value* is_small = b.CreateFCmpOLT(largest, Const(largest, 0x1p-400));
  return b.CreateSelect(is_large, Const(largest, 0x1p-515),
                        b.CreateSelect(is_small, Const(largest, 0x1p600), Const(largest, 1)));
}

// atan2(y, x) = -i log((x + i y) / sqrt(x^2 + y^2)), for f64. A common factor of y and x does not change the result.
llvm::Value* Atan2(Ir& ir, Operands operands) {
  IrBuilder& b = ir.b;
  llvm::Value* scale = ScaleOfSquares(ir, Split(ir, operands[0]), Split(ir, operands[1]));
  llvm::Value* const x[] = {Scale(ir, operands[0], scale), Scale(ir, operands[1], scale)};
  const Number y = Split(ir, x[0]);
  llvm::Value* i_y = Join(ir, b.CreateFNeg(y.im), y.re);
  const auto add = [&](llvm::Value* p, llvm::Value* q) {
    return Join(ir, b.CreateFAdd(Real(b, p), Real(b, q)), b.CreateFAdd(Imag(b, p), Imag(b, q)));
  };
  llvm::Value* squares = add(Multiply(ir, {x[0], x[0]}), Multiply(ir, {x[1], x[1]}));
  const Number log = Split(ir, Log(ir, {Divide(ir, {add(x[1], i_y), Sqrt(ir, {squares})})}));
  return Join(ir, log.im, b.CreateFNeg(log.re));
}

// Functions with cancellation (such as differences of logarithms) are computed in f64 for c64.
template <ComplexOp op>
llvm::Value* InDouble(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  if (Real(b, x[0])->getType()->isDoubleTy()) return op(ir, x);
  std::vector<llvm::Value*> wide;
  for (llvm::Value* value : x) {
    wide.push_back(
        Join(ir, b.CreateFPExt(Real(b, value), b.getDoubleTy()), b.CreateFPExt(Imag(b, value), b.getDoubleTy())));
  }
  llvm::Value* result = op(ir, wide);
  return Join(ir, b.CreateFPTrunc(Real(b, result), b.getFloatTy()), b.CreateFPTrunc(Imag(b, result), b.getFloatTy()));
}

llvm::Value* Tanh(Ir& ir, Operands x) {
  // tanh(a + ib) = (tanh a + i tan b) / (1 + i tanh a tan b), which does not overflow if a is large.
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x[0]);
  llvm::Value* t = EmitMath(ir, Opcode::kTanh, z.re);
  llvm::Value* s = EmitMath(ir, Opcode::kTan, z.im);
  llvm::Value* one = Const(t, 1);
  llvm::Value* numerator = Join(ir, t, s);
  llvm::Value* denominator = Join(ir, one, b.CreateFMul(t, s));
  return Divide(ir, {numerator, denominator});
}

// 1 / (1 + exp(-z)), or exp(z) / (1 + exp(z)) if the real part is negative: the exponential does not overflow.
llvm::Value* Logistic(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x[0]);
  llvm::Value* one = Const(z.re, 1);
  llvm::Value* negative = b.CreateFCmpOLT(z.re, Const(z.re, 0));
  const Number e = Split(ir, Exp(ir, {Scale(ir, x[0], b.CreateSelect(negative, one, Const(z.re, -1)))}));
  llvm::Value* numerator = Join(ir, b.CreateSelect(negative, e.re, one), b.CreateSelect(negative, e.im, Const(one, 0)));
  return Divide(ir, {numerator, Join(ir, b.CreateFAdd(one, e.re), e.im)});
}

// sin(a + ib) = sin a cosh b + i cos a sinh b; cos(a + ib) = cos a cosh b - i sin a sinh b.
template <bool is_sine>
llvm::Value* SineOrCosine(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x[0]);
  llvm::Value* sin = EmitMath(ir, Opcode::kSine, z.re);
  llvm::Value* cos = EmitMath(ir, Opcode::kCosine, z.re);
  // If |b| is large, cosh b is e^|b| / 2, and sinh b is this number with the sign of b.
  const Factors exp = ExpFactors(ir, Fabs(ir, z.im));
  const auto hyperbolic = [&](Opcode opcode, llvm::Value* half) {
    return Factors{b.CreateSelect(exp.is_far, b.CreateFMul(exp.first, half), EmitMath(ir, opcode, z.im)), exp.rest,
                   exp.is_far};
  };
  llvm::Value* half = Const(z.im, 0.5);
  const Factors cosh = hyperbolic(Opcode::kCosh, half);
  const Factors sinh = hyperbolic(Opcode::kSinh, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, half, z.im));
  if (is_sine) return Join(ir, Product(ir, sin, cosh), Product(ir, cos, sinh));
  return Join(ir, Product(ir, cos, cosh), b.CreateFNeg(Product(ir, sin, sinh)));
}

// sin z / cos z. If |b| is large, both overflow; then tan(a + ib) is 2 sin(2 a) exp(-2 |b|) +- i.
llvm::Value* Tan(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x[0]);
  llvm::Value* size = Fabs(ir, z.im);
  llvm::Value* is_far = b.CreateFCmpOGT(size, Const(size, 40));
  const Number usual = Split(ir, Divide(ir, {SineOrCosine<true>(ir, x), SineOrCosine<false>(ir, x)}));
  llvm::Value* product = b.CreateFMul(EmitMath(ir, Opcode::kSine, z.re), EmitMath(ir, Opcode::kCosine, z.re));
  llvm::Value* decay = EmitMath(ir, Opcode::kExponential, b.CreateFMul(size, Const(size, -2)));
  llvm::Value* re = b.CreateFMul(b.CreateFMul(product, decay), Const(size, 4));
  llvm::Value* im = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, Const(size, 1), z.im);
  return Join(ir, b.CreateSelect(is_far, re, usual.re), b.CreateSelect(is_far, im, usual.im));
}

llvm::Value* ExpM1(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x[0]);
  const Factors exp = ExpFactors(ir, z.re);
  // e^a cos b - 1 = expm1(a) cos b - 2 sin^2(b / 2). If a is large, expm1(a) is e^a.
  Factors grow = exp;
  grow.first = b.CreateSelect(exp.is_far, exp.first, EmitMath(ir, Opcode::kExponentialMinusOne, z.re));
  llvm::Value* half = EmitMath(ir, Opcode::kSine, b.CreateFMul(z.im, Const(z.im, 0.5)));
  llvm::Value* lost = b.CreateFMul(Const(half, 2), b.CreateFMul(half, half));
  llvm::Value* re = b.CreateFSub(Product(ir, EmitMath(ir, Opcode::kCosine, z.im), grow), lost);
  return Join(ir, re, Product(ir, EmitMath(ir, Opcode::kSine, z.im), exp));
}

llvm::Value* Log1p(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, x[0]);
  llvm::Value* one_more = b.CreateFAdd(z.re, Const(z.re, 1));
  // log |1 + z| = log1p(2 a + a^2 + b^2) / 2, which has no cancellation near 0.
  llvm::Value* excess = b.CreateFAdd(b.CreateFMul(z.re, b.CreateFAdd(z.re, Const(z.re, 2))), b.CreateFMul(z.im, z.im));
  llvm::Value* near = b.CreateFMul(EmitMath(ir, Opcode::kLogPlusOne, excess), Const(excess, 0.5));
  llvm::Value* log = LogModulus(ir, Join(ir, one_more, z.im));
  llvm::Value* is_near = b.CreateFCmpOLT(Fabs(ir, excess), Const(excess, 0.5));
  return Join(ir, b.CreateSelect(is_near, near, log), EmitAtan2(ir, z.im, one_more));
}

llvm::Value* ComplexSign(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number z = Split(ir, Scaled(ir, x[0]).value);
  llvm::Value* modulus = Hypot(ir, z.re, z.im);
  llvm::Value* is_zero = b.CreateFCmpOEQ(modulus, Const(modulus, 0));
  return Join(ir, b.CreateSelect(is_zero, z.re, b.CreateFDiv(z.re, modulus)),
              b.CreateSelect(is_zero, z.im, b.CreateFDiv(z.im, modulus)));
}

// Compares the real parts, and the imaginary parts if the real parts are equal. If a part of an operand is NaN, this
// operand is the result (the first operand if both have a NaN).
template <bool is_max>
llvm::Value* Extremum(Ir& ir, Operands x) {
  IrBuilder& b = ir.b;
  const Number p = Split(ir, x[0]), q = Split(ir, x[1]);
  const auto beyond = [&](llvm::Value* u, llvm::Value* v) {
    return is_max ? b.CreateFCmpOGT(u, v) : b.CreateFCmpOLT(u, v);
  };
  llvm::Value* first = b.CreateOr(beyond(p.re, q.re), b.CreateAnd(b.CreateFCmpOEQ(p.re, q.re), beyond(p.im, q.im)));
  llvm::Value* first_nan = b.CreateFCmpUNO(p.re, p.im);
  llvm::Value* second_nan = b.CreateFCmpUNO(q.re, q.im);
  llvm::Value* choose = b.CreateOr(first_nan, b.CreateAnd(first, b.CreateNot(second_nan)));
  return b.CreateSelect(choose, x[0], x[1]);
}

const std::map<Opcode, ComplexOp>& ComplexOps() {
  static const auto* const ops = new std::map<Opcode, ComplexOp>{
      {Opcode::kReal, [](Ir& ir, Operands x) { return Real(ir.b, x[0]); }},
      {Opcode::kImag, [](Ir& ir, Operands x) { return Imag(ir.b, x[0]); }},
      {Opcode::kAbs, [](Ir& ir, Operands x) { return Hypot(ir, Real(ir.b, x[0]), Imag(ir.b, x[0])); }},
      {Opcode::kNegate,
       [](Ir& ir, Operands x) {
         return Join(ir, ir.b.CreateFNeg(Real(ir.b, x[0])), ir.b.CreateFNeg(Imag(ir.b, x[0])));
       }},
      {Opcode::kAdd,
       [](Ir& ir, Operands x) {
         return Join(ir, ir.b.CreateFAdd(Real(ir.b, x[0]), Real(ir.b, x[1])),
                     ir.b.CreateFAdd(Imag(ir.b, x[0]), Imag(ir.b, x[1])));
       }},
      {Opcode::kSubtract,
       [](Ir& ir, Operands x) {
         return Join(ir, ir.b.CreateFSub(Real(ir.b, x[0]), Real(ir.b, x[1])),
                     ir.b.CreateFSub(Imag(ir.b, x[0]), Imag(ir.b, x[1])));
       }},
      {Opcode::kMultiply, Multiply},
      {Opcode::kDivide, Divide},
      {Opcode::kExponential, Exp},
      {Opcode::kExponentialMinusOne, ExpM1},
      {Opcode::kLog, Log},
      {Opcode::kLogPlusOne, Log1p},
      {Opcode::kLogistic, Logistic},
      {Opcode::kSqrt, Sqrt},
      {Opcode::kRsqrt, Rsqrt},
      {Opcode::kPower, InDouble<Power>},
      {Opcode::kAtan2, InDouble<Atan2>},
      {Opcode::kTanh, Tanh},
      {Opcode::kSine, SineOrCosine<true>},
      {Opcode::kCosine, SineOrCosine<false>},
      {Opcode::kTan, Tan},
      {Opcode::kSign, ComplexSign},
      {Opcode::kMaximum, Extremum<true>},
      {Opcode::kMinimum, Extremum<false>},
  };
  return *ops;
}

}  // namespace

bool HasComplexOp(Opcode opcode) { return ComplexOps().contains(opcode); }

llvm::Value* EmitComplexOp(Ir& ir, Opcode opcode, Operands operands) { return ComplexOps().at(opcode)(ir, operands); }

}  // namespace xlad::compiler
