// Random instructions that are exact for all values, including NaNs, infinities and denormal numbers: bitcasts, and
// operations that IEEE 754 defines to the last bit.
#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

bool IsPlain(ElementType type) { return tensor::IsFloating(type) || tensor::IsInteger(type); }

// A bitcast-convert to a type of the same width, to a narrower type (which adds a dimension) or to a wider type (which
// removes a dimension).
Sample Bitcast(RandomValues& random, Builder& builder, Sample x) {
  if (!IsPlain(x.type()) || !random.HasCertainBits(x)) return {};
  const ElementType type = random.OneIn(2) ? random.RandomInteger() : random.RandomFloat();
  if (random.OneIn(3)) {  // All elements are equal. Passes move other elementwise instructions across such broadcasts.
    x.array = builder.Full(x.array->shape(), random.FitDims(builder, x, {}).array);
  }
  const int64_t from = tensor::ByteWidth(x.type()), to = tensor::ByteWidth(type);
  if (to > from && (x.ndim() == 0 || x.dims().back() != to / from)) {
    Dims sizes = x.dims(), map;
    for (int64_t d = 0; d < x.ndim(); ++d) map.push_back(d);
    sizes.push_back(to / from);
    if (tensor::Product(sizes) > RandomValues::kMaxElements) return {};
    x.array = builder.Broadcast(x.array, sizes, map);
  }
  Dims dims = x.dims();
  if (to < from) dims.push_back(from / to);
  if (to > from) dims.pop_back();
  auto cast = std::make_unique<Instruction>(Opcode::kBitcastConvert, Shape(type, dims));
  return {Append(builder, std::move(cast), {x.array}), kUnbounded, 0, 0};
}

Sample FloatUnary(RandomValues& random, Builder& builder, const Sample& x) {
  static constexpr Opcode kOpcodes[] = {Opcode::kNegate, Opcode::kAbs,  Opcode::kFloor,           Opcode::kCeil,
                                        Opcode::kSign,   Opcode::kSqrt, Opcode::kRoundNearestEven};
  if (random.OneIn(4)) return {builder.Unary(Opcode::kIsFinite, x.array)};
  if (random.OneIn(4)) return random.ConvertTo(builder, x, random.OneIn(2) ? random.RandomFloat() : ElementType::kF32);
  return {builder.Unary(random.OneOf(kOpcodes), x.array), kUnbounded, 0, 0};
}

Sample FloatBinary(RandomValues& random, Builder& builder, const Sample& x, const Sample& y) {
  static constexpr Opcode kOpcodes[] = {Opcode::kAdd,    Opcode::kSubtract, Opcode::kMultiply,
                                        Opcode::kDivide, Opcode::kMaximum,  Opcode::kMinimum};
  static constexpr hlo::Comparison kComparisons[] = {hlo::Comparison::kEq, hlo::Comparison::kNe, hlo::Comparison::kGe,
                                                     hlo::Comparison::kGt, hlo::Comparison::kLe, hlo::Comparison::kLt};
  if (random.OneIn(5)) return {builder.Compare(random.OneOf(kComparisons), x.array, y.array)};
  return {builder.Binary(random.OneOf(kOpcodes), x.array, y.array), kUnbounded, 0, 0};
}

// The second operand of an operation on x: a value of the pool, x itself, an array of special values, or a constant for
// which simplification has rules (0, -0, 1, ...).
Sample Other(RandomValues& random, Builder& builder, const Sample& x, const Pool& pool) {
  static constexpr double kConstants[] = {0.0, 0.0, -0.0, -0.0, 1.0, -1.0, 2.0, 0.5};
  if (random.OneIn(2)) return {Splat(builder, x.array, random.OneOf(kConstants)), 2, 1, 0};
  if (random.OneIn(4)) return {random.SpecialConstant(builder, x.type(), x.dims()), kUnbounded, 0, 0};
  if (random.OneIn(6)) return x;
  return random.Fit(builder, random.Pick(pool), x.type(), x.dims());
}

}  // namespace

Sample RandomExact(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.Pick(pool);
  if (random.OneIn(3)) return Bitcast(random, builder, x);
  if (random.OneIn(8)) {
    return {random.SpecialConstant(builder, random.OneIn(2) ? random.RandomInteger() : random.RandomFloat(),
                                   random.RandomDims(3)),
            kUnbounded, 0, 0};
  }
  if (!tensor::IsFloating(x.type()) || !x.exact() || random.AgreementOf(x.array) > Agreement::kNumbers) return {};
  if (random.OneIn(4)) return FloatUnary(random, builder, x);
  const Sample y = Other(random, builder, x, pool);
  if (!y.exact() || random.AgreementOf(y.array) > Agreement::kNumbers) return {};
  if (!random.OneIn(5)) return FloatBinary(random, builder, x, y);
  const Sample condition = random.PickExact(pool);
  if (!condition) return {};
  Instruction* chosen = random.Fit(builder, condition, ElementType::kPred, x.dims()).array;
  return JoinOf(x, y, builder.Select(chosen, x.array, y.array));
}

}  // namespace xlad::compiler
