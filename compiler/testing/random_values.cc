#include "compiler/testing/random_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/testing/random_inputs.h"
#include "hlo/infer/infer.h"

namespace xlad::compiler {

namespace {

// The number of bits of the significand, including the implied bit.
int SignificandBits(ElementType type) {
  switch (type) {
    case ElementType::kBF16: return 8;
    case ElementType::kF16: return 11;
    case ElementType::kF64: case ElementType::kC128: return 53;
    default: return 24;
  }
}

bool HasRounding(ElementType type) { return tensor::IsFloating(type) || tensor::IsComplex(type); }

// Values with a bound above kLarge are clamped or scaled to kSmall. Values with a grid finer than 2^-kFine are rounded
// down to multiples of 2^-kCoarse.
constexpr double kLarge = 32, kSmall = 8;
constexpr int kFine = 6, kCoarse = 3;

hlo::Instruction* Clamp(Builder& builder, Instruction* x, double low, double high) {
  x = builder.Binary(Opcode::kMaximum, x, Splat(builder, x, low));
  return builder.Binary(Opcode::kMinimum, x, Splat(builder, x, high));
}

}  // namespace

double RoundingOf(ElementType type) { return HasRounding(type) ? std::ldexp(1.0, -SignificandBits(type)) : 0; }

Sample JoinOf(const Sample& x, const Sample& y, Instruction* array) {
  return {array, std::max(x.bound, y.bound), std::max(x.fraction, y.fraction), std::max(x.error, y.error)};
}

Instruction* Append(Builder& builder, std::unique_ptr<Instruction> instruction,
                    absl::Span<Instruction* const> operands) {
  Instruction* added = builder.computation()->Add(std::move(instruction), operands);
  const absl::StatusOr<Shape> shape = hlo::InferShape(*added);
  if (!shape.ok()) {
    builder.computation()->Remove(added);
    return nullptr;
  }
  if (!added->shape().SameIgnoringLayout(*shape)) added->mutable_shape() = *shape;
  return added;
}

Instruction* Splat(Builder& builder, const Instruction* like, double value) {
  return builder.Full(like->shape(), builder.Scalar(like->shape().type(), value));
}

Instruction* IntegerScalar(Builder& builder, ElementType type, uint64_t bits) {
  tensor::Array array(tensor::Shape{type, {}});
  std::memcpy(array.bytes().data(), &bits, array.bytes().size());  // The low bytes: little-endian.
  return builder.Constant(std::move(array));
}

ElementType RandomValues::RandomType() {
  if (OneIn(2)) return RandomFloat();
  static constexpr ElementType kTypes[] = {ElementType::kS32, ElementType::kPred, ElementType::kC64};
  return OneIn(4) ? OneOf(kTypes) : RandomInteger();
}

ElementType RandomValues::RandomFloat() {
  static constexpr ElementType kTypes[] = {ElementType::kBF16, ElementType::kF16, ElementType::kF64};
  return OneIn(4) ? OneOf(kTypes) : ElementType::kF32;
}

ElementType RandomValues::RandomInteger() {
  static constexpr ElementType kTypes[] = {ElementType::kS32, ElementType::kU8,  ElementType::kS8,
                                           ElementType::kS16, ElementType::kU16, ElementType::kU32,
                                           ElementType::kS64, ElementType::kU64};
  return OneOf(kTypes);
}

Dims RandomValues::RandomDims(int max_ndim) {
  static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12};
  Dims dims;
  for (int d = Below(max_ndim + 1); d > 0; --d) {
    const int64_t size = options_.specials && OneIn(8) ? (OneIn(6) ? 0 : 1) : OneOf(kSizes);
    if (tensor::Product(dims) * size <= kMaxElements / 2) dims.push_back(size);
  }
  return dims;
}

Sample RandomValues::Pick(const Pool& pool) {
  const int64_t n = std::ssize(pool);
  return pool[OneIn(2) ? n - 1 - Below(std::min<int64_t>(n, 4)) : Below(n)];
}

Sample RandomValues::PickFinite(const Pool& pool) {
  for (int tries = 0; tries < 10; ++tries) {
    if (const Sample value = Pick(pool); value.finite()) return value;
  }
  return {};
}

Sample RandomValues::PickExact(const Pool& pool) {
  for (int tries = 0; tries < 6; ++tries) {
    if (const Sample value = Pick(pool); value.finite() && value.exact()) return value;
  }
  return {};
}

Sample RandomValues::FiniteOperand(Builder& builder, const Pool& pool, ElementType type, const Dims& dims) {
  const Sample value = PickFinite(pool);
  return value ? Fit(builder, value, type, dims) : FreshArray(builder, type, dims);
}

Instruction* RandomValues::Index(Builder& builder, const Pool* pool, ElementType type, int64_t size) {
  const Sample start = pool == nullptr ? Sample() : PickExact(*pool);
  if (start && OneIn(2)) return Fit(builder, start, type, {}).array;
  if (options_.specials && OneIn(2)) return SpecialConstant(builder, type, {});
  return IntegerScalar(builder, type, static_cast<uint64_t>(Below(size + 2)) - (tensor::IsSigned(type) ? 1 : 0));
}

Instruction* RandomValues::SpecialConstant(Builder& builder, ElementType type, const Dims& dims) {
  if (!dims.empty() && tensor::Product(dims) <= 24 && OneIn(2)) {
    return builder.Constant(RandomSpecialArray({type, dims}, &random_));
  }
  return builder.Full(Shape(type, dims), builder.Constant(RandomSpecialArray({type, {}}, &random_)));
}

Sample RandomValues::Normalize(Builder& builder, Sample value) {
  if (!value || value.array->shape().is_tuple() || value.array->shape().elements() > kMaxElements) return {};
  const ElementType type = value.type();
  if (!HasRounding(type)) return {value.array, 0, 0, 0};
  if (!value.finite()) return value.exact() ? Sample{value.array, kUnbounded, 0, 0} : Sample();
  const double unit = RoundingOf(type);
  value.bound = std::max(value.bound, unit);
  if (type == ElementType::kF16 && value.bound > 3e4) return {};  // The value may be outside of the type's range.
  if (value.exact() && std::log2(value.bound) + value.fraction > SignificandBits(type)) {
    value.error = 2 * unit * value.bound;
  }
  const bool real = tensor::IsFloating(type);
  if (value.bound > kLarge) {
    if (value.exact() && real) {
      value.array = Clamp(builder, value.array, -kSmall, kSmall);
      value.bound = kSmall;
    } else {  // The scale is a power of two, so there is no rounding.
      const double scale = std::ldexp(1.0, -static_cast<int>(std::ceil(std::log2(value.bound / kSmall))));
      if (scale < 1e-4) return {};
      value.array = builder.Binary(Opcode::kMultiply, value.array, Splat(builder, value.array, scale));
      value.bound *= scale;
      value.error *= scale;
      value.fraction -= static_cast<int>(std::log2(scale));
    }
  }
  if (value.exact() && value.fraction > kFine && real) {
    Instruction* up = builder.Binary(Opcode::kMultiply, value.array, Splat(builder, value.array, 1 << kCoarse));
    value.array = builder.Binary(Opcode::kMultiply, builder.Unary(Opcode::kFloor, up),
                                 Splat(builder, value.array, 1.0 / (1 << kCoarse)));
    value.bound += 1;
    value.fraction = kCoarse;
  }
  return value.error > value.bound / 16 ? Sample() : value;
}

Sample RandomValues::FreshArray(Builder& builder, ElementType type, const Dims& dims) {
  Instruction* x = dims.empty() ? builder.Scalar(ElementType::kS32, Below(7))
                                : builder.Iota(Shape(ElementType::kS32, dims), Below(std::ssize(dims)));
  x = builder.Binary(Opcode::kRemainder, x, Splat(builder, x, 2 + Below(5)));
  return {builder.ConvertTo(type, x), 8, 0, 0};
}

Sample RandomValues::ConvertTo(Builder& builder, Sample x, ElementType type) {
  if (x.type() == type) return x;
  if (!x.exact() && !HasRounding(type)) return FreshArray(builder, type, x.dims());
  if (tensor::IsComplex(x.type())) x.array = builder.Unary(Opcode::kReal, x.array);
  Sample result{builder.Convert(type, x.array), x.bound, x.fraction, x.error};
  if (!HasRounding(type)) return {result.array, 0, 0, 0};
  if (!x.finite()) return result;
  if (!HasRounding(x.type())) {
    result.bound = x.type() == ElementType::kPred ? 1 : 1e20;
    if (tensor::IsComplex(type) && result.bound > 1) return FreshArray(builder, type, x.dims());
  }
  if (x.error > 0) result.error += RoundingOf(type) * x.bound;
  if (result.bound > kSmall && x.error == 0 && !tensor::IsComplex(type)) {
    // The values are clamped after the conversion.
    result.array = Clamp(builder, result.array, -kSmall, kSmall);
    result.bound = kSmall;
  }
  return result;
}

Sample RandomValues::FitDims(Builder& builder, Sample x, const Dims& dims) {
  if (x.dims() == dims) return x;
  while (x.ndim() > std::ssize(dims)) {
    // There are too many dimensions: take the first element of the leading dimension.
    Dims limit = x.dims();
    if (limit[0] == 0) return FreshArray(builder, x.type(), dims);
    limit[0] = 1;
    x.array = builder.Slice(x.array, Dims(limit.size(), 0), limit);
    x.array = builder.Reshape(x.array, Dims(limit.begin() + 1, limit.end()));
  }
  const int64_t missing = std::ssize(dims) - x.ndim();
  if (missing > 0) {
    Dims sizes(dims.begin(), dims.begin() + missing), map;
    for (int64_t d = 0; d < x.ndim(); ++d) {
      sizes.push_back(x.dims()[d]);
      map.push_back(d + missing);
    }
    x.array = builder.Broadcast(x.array, sizes, map);
  }
  Dims limit = x.dims();
  std::vector<hlo::PaddingDimension> padding(dims.size());
  bool pads = false;
  for (size_t d = 0; d < dims.size(); ++d) {
    limit[d] = std::min(limit[d], dims[d]);
    padding[d].high = dims[d] - limit[d];
    pads |= padding[d].high > 0;
  }
  if (limit != x.dims()) x.array = builder.Slice(x.array, Dims(limit.size(), 0), limit);
  if (pads) x.array = builder.Pad(x.array, builder.Scalar(x.type(), 1), padding);
  x.bound = std::max(x.bound, 1.0);
  return x;
}

Sample RandomValues::Fit(Builder& builder, Sample x, ElementType type, const Dims& dims) {
  return FitDims(builder, ConvertTo(builder, x, type), dims);
}

}  // namespace xlad::compiler
