// Random elementwise instructions.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

constexpr double kF32Unit = 0x1p-24;

// Functions for which the compiler and the evaluator use different formulas: |f(x + e) - f(x)| <= slope * |e|.
struct SmoothFunction {
  Opcode opcode;
  double slope;
  double bound;  // The bound of the result, or 0 if the bound of the operand applies.
};
constexpr SmoothFunction kEverywhere[] = {
    {Opcode::kTanh, 1, 1},  {Opcode::kLogistic, 0.25, 1}, {Opcode::kSine, 1, 1}, {Opcode::kCosine, 1, 1},
    {Opcode::kErf, 1.2, 1}, {Opcode::kAtan, 1, 1.6},      {Opcode::kAsinh, 1, 0}};
// These functions are applied to |x| + 1.
constexpr SmoothFunction kFromOne[] = {{Opcode::kLog, 1, 0},     {Opcode::kSqrt, 0.5, 0}, {Opcode::kRsqrt, 0.5, 1},
                                       {Opcode::kCbrt, 0.34, 0}, {Opcode::kLogPlusOne, 0.5, 0}};
// These functions are applied to arguments with |x| <= 4.
constexpr Opcode kGrowing[] = {Opcode::kExponential, Opcode::kExponentialMinusOne, Opcode::kSinh, Opcode::kCosh};

Sample Smooth(RandomValues& random, Builder& builder, Sample x) {
  const double unit = RoundingOf(x.type()) * 2 + 16 * kF32Unit;
  const auto result = [&](Instruction* array, double bound, double slope) {
    return Sample{array, bound, 0, slope * x.error + unit * std::max(bound, slope * x.bound)};
  };
  const int kind = random.Below(3);
  if (kind == 0) {
    const SmoothFunction& f = kEverywhere[random.Below(std::size(kEverywhere))];
    return result(builder.Unary(f.opcode, x.array), f.bound > 0 ? f.bound : x.bound, f.slope);
  }
  if (kind == 1) {
    const SmoothFunction& f = kFromOne[random.Below(std::size(kFromOne))];
    Instruction* positive = builder.Binary(Opcode::kAdd, builder.Unary(Opcode::kAbs, x.array),
                                            Splat(builder, x.array, 1));
    return result(builder.Unary(f.opcode, positive), f.bound > 0 ? f.bound : x.bound + 1, f.slope);
  }
  if (x.bound > 4) return {};
  const double largest = std::exp(x.bound);
  return result(builder.Unary(kGrowing[random.Below(std::size(kGrowing))], x.array), largest, largest);
}

Sample ComplexParts(RandomValues& random, Builder& builder, Sample x) {
  switch (random.Below(4)) {
    case 0: return Like(x, builder.Unary(Opcode::kReal, x.array));
    case 1: return Like(x, builder.Unary(Opcode::kImag, x.array));
    case 2: return Like(x, builder.Unary(Opcode::kNegate, x.array));
    default:
      return {builder.Unary(Opcode::kAbs, x.array), x.bound * 1.5, 0, 1.5 * x.error + 16 * kF32Unit * x.bound};
  }
}

Sample Unary(RandomValues& random, Builder& builder, Sample x) {
  const ElementType type = x.type();
  if (tensor::IsComplex(type)) return ComplexParts(random, builder, x);
  if (random.OneIn(4)) return random.ConvertTo(builder, x, random.RandomType());
  if (type == ElementType::kPred) return {builder.Unary(Opcode::kNot, x.array)};
  if (tensor::IsInteger(type)) {
    static constexpr Opcode kOpcodes[] = {Opcode::kNegate, Opcode::kNot, Opcode::kAbs, Opcode::kSign, Opcode::kPopcnt,
                                          Opcode::kCountLeadingZeros};
    const Opcode opcode = kOpcodes[random.Below(6)];
    if (tensor::IsUnsigned(type) && (opcode == Opcode::kAbs || opcode == Opcode::kSign)) return {};
    return {builder.Unary(opcode, x.array)};
  }
  const int kind = random.Below(4);
  if (kind == 0) return Like(x, builder.Unary(random.OneIn(2) ? Opcode::kNegate : Opcode::kAbs, x.array));
  if (kind == 1 && x.exact()) {
    static constexpr Opcode kJumps[] = {Opcode::kFloor, Opcode::kCeil, Opcode::kSign, Opcode::kRoundNearestEven,
                                        Opcode::kRoundNearestAfz};
    return {builder.Unary(kJumps[random.Below(5)], x.array), x.bound + 1, 0, 0};
  }
  if (kind == 2 && random.OneIn(3)) return {builder.Unary(Opcode::kIsFinite, x.array)};
  if (kind == 2 && random.OneIn(3) && x.exact()) {
    auto reduce = std::make_unique<Instruction>(Opcode::kReducePrecision, x.array->shape());
    reduce->mutable_attributes().exponent_bits = 5;
    reduce->mutable_attributes().mantissa_bits = 3 + random.Below(5);
    return {Append(builder, std::move(reduce), {x.array}), x.bound * 1.25, x.fraction, 0};
  }
  return Smooth(random, builder, x);
}

Sample IntegerBinary(RandomValues& random, Builder& builder, Sample x, Sample y) {
  static constexpr Opcode kLogical[] = {Opcode::kAnd, Opcode::kOr, Opcode::kXor};
  static constexpr Opcode kOpcodes[] = {Opcode::kAdd,     Opcode::kSubtract,  Opcode::kMultiply,
                                        Opcode::kMaximum, Opcode::kMinimum,   Opcode::kAnd,
                                        Opcode::kOr,      Opcode::kXor,       Opcode::kDivide,
                                        Opcode::kRemainder, Opcode::kShiftLeft, Opcode::kShiftRightLogical,
                                        Opcode::kShiftRightArithmetic, Opcode::kPower};
  if (x.type() == ElementType::kPred) return {builder.Binary(kLogical[random.Below(3)], x.array, y.array)};
  return {builder.Binary(kOpcodes[random.Below(std::size(kOpcodes))], x.array, y.array)};
}

// A part of a function of complex numbers near the limits of c64: x and y are multiplied by the largest power of two
// with which they are finite, or by the smallest one with which they are exact. Results of sqrt and rsqrt are scaled
// back.
Sample ComplexNearLimits(RandomValues& random, Builder& builder, const Sample& x, const Sample& y) {
  if (!random.HasCertainBits(x) || !random.HasCertainBits(y)) return {};
  const auto scaled = [&](Instruction* part, int exponent) {
    return builder.Binary(Opcode::kMultiply, part, Splat(builder, part, std::ldexp(1.0, exponent)));
  };
  const double bound = std::max({x.bound + 1, y.bound, 1.0});
  const bool is_large = random.OneIn(2);
  const int exponent = is_large ? 127 - std::ilogb(bound) : std::max({x.fraction, y.fraction, 0}) - 149;
  const int half = exponent / 2;
  const double unit = 32 * RoundingOf(x.type()), modulus = 1.5 * bound;
  const auto number = [&](Instruction* re) {
    return builder.Binary(Opcode::kComplex, scaled(re, exponent), scaled(y.array, exponent));
  };
  Instruction* positive = builder.Binary(Opcode::kAdd, builder.Unary(Opcode::kAbs, x.array),
                                         Splat(builder, x.array, 1));
  const auto part = [&](Instruction* value, int back, double largest) {
    Instruction* real = builder.Unary(random.OneIn(2) ? Opcode::kReal : Opcode::kImag, value);
    return Sample{back == 0 ? real : scaled(real, back), largest, 0, unit * largest};
  };
  switch (random.Below(5)) {
    case 0: return part(builder.Unary(Opcode::kSqrt, number(x.array)), -half, 2 * std::sqrt(modulus));
    case 1: return part(builder.Unary(Opcode::kRsqrt, number(positive)), half, 2);
    case 2: return part(builder.Unary(Opcode::kSign, number(x.array)), 0, 1);
    case 3: return part(builder.Binary(Opcode::kDivide, number(x.array), number(positive)), 0, modulus);
    default: {
      const Opcode opcode = is_large && random.OneIn(2) ? Opcode::kLogPlusOne : Opcode::kLog;
      return part(builder.Unary(opcode, number(positive)), 0, 0.7 * std::abs(exponent) + std::log(modulus) + 4);
    }
  }
}

Sample Binary(RandomValues& random, Builder& builder, Sample x, Sample y) {
  const double unit = RoundingOf(x.type());
  const bool exact = x.exact() && y.exact();
  // Results of exact operands are exact while they fit their grid, which Normalize checks.
  const auto error = [&](double grown, double bound) { return exact ? 0 : grown + unit * bound; };
  const double wide = tensor::IsComplex(x.type()) ? 2 : 1;
  switch (random.Below(tensor::IsComplex(x.type()) ? 3 : 9)) {
    case 0:
    case 1:
      return {builder.Binary(random.OneIn(2) ? Opcode::kAdd : Opcode::kSubtract, x.array, y.array), x.bound + y.bound,
              std::max(x.fraction, y.fraction), error(x.error + y.error, x.bound + y.bound)};
    case 2: {
      const double bound = wide * x.bound * y.bound;
      return {builder.Binary(Opcode::kMultiply, x.array, y.array), bound, x.fraction + y.fraction,
              error(wide * (x.error * y.bound + y.error * x.bound) + unit * bound, bound)};
    }
    case 3:
    case 4:
      return {builder.Binary(random.OneIn(2) ? Opcode::kMaximum : Opcode::kMinimum, x.array, y.array),
              std::max(x.bound, y.bound), std::max(x.fraction, y.fraction), std::max(x.error, y.error)};
    case 5: {  // The divisor is at least one.
      Instruction* divisor = builder.Binary(Opcode::kAdd, builder.Unary(Opcode::kAbs, y.array),
                                             Splat(builder, y.array, 1));
      if (random.OneIn(3) && exact) {
        return {builder.Binary(Opcode::kRemainder, x.array, divisor), x.bound, std::max(x.fraction, y.fraction), 0};
      }
      const Opcode opcode = random.OneIn(3) ? Opcode::kAtan2 : Opcode::kDivide;
      return {builder.Binary(opcode, x.array, divisor), std::max(x.bound, 1.6), 0,
              x.error + y.error * std::max(1.0, x.bound) + (4 * unit + 16 * kF32Unit) * std::max(1.6, x.bound)};
    }
    case 6: {  // (|x| + 1) ^ min(y, 1).
      Instruction* base = builder.Binary(Opcode::kAdd, builder.Unary(Opcode::kAbs, x.array),
                                          Splat(builder, x.array, 1));
      Instruction* exponent = builder.Binary(Opcode::kMinimum, y.array, Splat(builder, y.array, 1));
      const double bound = x.bound + 1;
      return {builder.Binary(Opcode::kPower, base, exponent), bound, 0,
              x.error * std::max(1.0, y.bound) + y.error * bound * std::log(bound) +
                  (4 * unit + 32 * kF32Unit * std::max(1.0, y.bound)) * bound};
    }
    case 7: {
      if (!exact) return {};
      static constexpr hlo::Comparison kComparisons[] = {hlo::Comparison::kEq, hlo::Comparison::kNe,
                                                         hlo::Comparison::kGe, hlo::Comparison::kGt,
                                                         hlo::Comparison::kLe, hlo::Comparison::kLt};
      return {builder.Compare(kComparisons[random.Below(6)], x.array, y.array)};
    }
    default: {
      if (x.type() != ElementType::kF32) return {};
      if (random.OneIn(2)) return ComplexNearLimits(random, builder, x, y);
      return {builder.Binary(Opcode::kComplex, x.array, y.array), std::max(x.bound, y.bound),
              std::max(x.fraction, y.fraction), std::max(x.error, y.error)};
    }
  }
}

// A clamp, or a select with any condition.
Sample Choose(RandomValues& random, Builder& builder, const Sample& x, const Sample& y, const Pool& pool) {
  if (!tensor::IsComplex(x.type()) && x.type() != ElementType::kPred && random.OneIn(3)) {
    Instruction* low = builder.Scalar(x.type(), 0);
    Instruction* high = builder.Scalar(x.type(), 1 + random.Below(4));
    if (random.OneIn(2)) low = builder.Full(x.array->shape(), low), high = builder.Full(x.array->shape(), high);
    auto clamp = std::make_unique<Instruction>(Opcode::kClamp, x.array->shape());
    return Like(x, Append(builder, std::move(clamp), {low, x.array, high}));
  }
  Sample condition = random.PickExact(pool);
  if (!condition) return {};
  condition = random.Fit(builder, condition, ElementType::kPred, x.dims());
  return JoinOf(x, y, builder.Select(condition.array, x.array, y.array));
}

}  // namespace

Sample RandomElementwise(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.PickFinite(pool);
  if (!x) return {};
  if (random.OneIn(3)) return Unary(random, builder, x);
  const Sample y = random.FiniteOperand(builder, pool, x.type(), x.dims());
  if (random.OneIn(5)) return Choose(random, builder, x, y, pool);
  if (tensor::IsInteger(x.type()) || x.type() == ElementType::kPred) {
    if (!random.OneIn(5)) return IntegerBinary(random, builder, x, y);
    return {builder.Compare(random.OneIn(2) ? hlo::Comparison::kLt : hlo::Comparison::kEq, x.array, y.array)};
  }
  return Binary(random, builder, x, y);
}

}  // namespace xlad::compiler
