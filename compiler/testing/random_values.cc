#include "compiler/testing/random_values.h"

#include <algorithm>
#include <cmath>

#include "hlo/infer/infer.h"

namespace xlad::compiler {

using hlo::Builder;
using hlo::Dims;
using hlo::ElementType;
using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;

namespace {

// Bits of the significand, the implied one included.
int SignificandBits(ElementType type) {
  switch (type) {
    case ElementType::kBF16: return 8;
    case ElementType::kF16: return 11;
    case ElementType::kF64: case ElementType::kC128: return 53;
    default: return 24;
  }
}

bool HasRounding(ElementType type) { return tensor::IsFloating(type) || tensor::IsComplex(type); }

// Large values are brought back to this.
constexpr double kLarge = 32, kSmall = 8;
constexpr int kFine = 6, kCoarse = 3;

}  // namespace

double RoundingOf(ElementType type) { return HasRounding(type) ? std::ldexp(1.0, -SignificandBits(type)) : 0; }

ElementType RandomValues::RandomType() {
  static constexpr ElementType kTypes[] = {ElementType::kS32, ElementType::kS32, ElementType::kPred, ElementType::kU8,
                                           ElementType::kS8,  ElementType::kS16, ElementType::kU16,  ElementType::kU32,
                                           ElementType::kS64, ElementType::kU64, ElementType::kC64};
  return OneIn(2) ? RandomFloat() : kTypes[Below(11)];
}

ElementType RandomValues::RandomFloat() {
  static constexpr ElementType kTypes[] = {ElementType::kBF16, ElementType::kF16, ElementType::kF64};
  return OneIn(4) ? kTypes[Below(3)] : ElementType::kF32;
}

Dims RandomValues::RandomDims(int max_ndim) {
  static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12};
  Dims dims;
  for (int d = Below(max_ndim + 1); d > 0; --d) {
    const int64_t size = kSizes[Below(10)];
    if (tensor::Product(dims) * size <= kMaxElements / 2) dims.push_back(size);
  }
  return dims;
}

Sample RandomValues::Pick(const Pool& pool) {
  const int64_t n = std::ssize(pool);
  return pool[OneIn(2) ? n - 1 - Below(std::min<int64_t>(n, 4)) : Below(n)];
}

Sample RandomValues::PickExact(const Pool& pool) {
  for (int tries = 0; tries < 6; ++tries) {
    if (const Sample value = Pick(pool); value.exact()) return value;
  }
  return {};
}

Sample RandomValues::PickOf(const Pool& pool, ElementType type, bool exact) {
  for (int tries = 0; tries < 6; ++tries) {
    const Sample value = Pick(pool);
    if (value.type() == type && (value.exact() || !exact)) return value;
  }
  return {};
}

Instruction* RandomValues::Append(Builder* builder, std::unique_ptr<Instruction> instruction,
                                  absl::Span<Instruction* const> operands) {
  Instruction* added = builder->computation()->Add(std::move(instruction), operands);
  const absl::StatusOr<Shape> shape = hlo::InferShape(*added);
  if (!shape.ok()) {
    builder->computation()->Remove(added);
    return nullptr;
  }
  if (!added->shape().SameIgnoringLayout(*shape)) added->mutable_shape() = *shape;
  return added;
}

Instruction* RandomValues::Splat(Builder* builder, const Instruction* like, double value) {
  return builder->Full(like->shape(), builder->Scalar(like->shape().type(), value));
}

Sample RandomValues::Settle(Builder* builder, Sample value) {
  if (!value || value.array->shape().is_tuple() || value.array->shape().elements() > kMaxElements) return {};
  const ElementType type = value.type();
  if (!HasRounding(type)) return {value.array, 0, 0, 0};
  const double unit = RoundingOf(type);
  value.bound = std::max(value.bound, unit);
  if (type == ElementType::kF16 && value.bound > 3e4) return {};  // May have grown beyond the type's range.
  if (value.exact() && std::log2(value.bound) + value.fraction > SignificandBits(type)) {
    value.error = 2 * unit * value.bound;
  }
  const bool real = tensor::IsFloating(type);
  if (value.bound > kLarge) {
    if (value.exact() && real) {
      value.array = builder->Binary(Opcode::kMaximum, value.array, Splat(builder, value.array, -kSmall));
      value.array = builder->Binary(Opcode::kMinimum, value.array, Splat(builder, value.array, kSmall));
      value.bound = kSmall;
    } else {  // Powers of two: no rounding.
      const double scale = std::ldexp(1.0, -static_cast<int>(std::ceil(std::log2(value.bound / kSmall))));
      if (scale < 1e-4) return {};
      value.array = builder->Binary(Opcode::kMultiply, value.array, Splat(builder, value.array, scale));
      value.bound *= scale;
      value.error *= scale;
      value.fraction -= static_cast<int>(std::log2(scale));
    }
  }
  if (value.exact() && value.fraction > kFine && real) {
    Instruction* up = builder->Binary(Opcode::kMultiply, value.array, Splat(builder, value.array, 1 << kCoarse));
    value.array = builder->Binary(Opcode::kMultiply, builder->Unary(Opcode::kFloor, up),
                                  Splat(builder, value.array, 1.0 / (1 << kCoarse)));
    value.bound += 1;
    value.fraction = kCoarse;
  }
  return value.error > value.bound / 16 ? Sample() : value;
}

Sample RandomValues::Fresh(Builder* builder, ElementType type, const Dims& dims) {
  Instruction* x = dims.empty() ? builder->Scalar(ElementType::kS32, Below(7))
                                : builder->Iota(Shape(ElementType::kS32, dims),
                                                Below(std::ssize(dims)));
  x = builder->Binary(Opcode::kRemainder, x, Splat(builder, x, 2 + Below(5)));
  if (type != ElementType::kS32) x = builder->Convert(type, x);
  return {x, 8, 0, 0};
}

Sample RandomValues::ConvertTo(Builder* builder, Sample x, ElementType type) {
  if (x.type() == type) return x;
  if (!x.exact() && !HasRounding(type)) return Fresh(builder, type, x.dims());
  if (tensor::IsComplex(x.type())) x.array = builder->Unary(Opcode::kReal, x.array);
  Sample result{builder->Convert(type, x.array), x.bound, x.fraction, x.error};
  if (!HasRounding(type)) return {result.array, 0, 0, 0};
  if (!HasRounding(x.type())) {
    result.bound = x.type() == ElementType::kPred ? 1 : 1e20;
    if (tensor::IsComplex(type) && result.bound > 1) return Fresh(builder, type, x.dims());
  }
  if (x.error > 0) result.error += RoundingOf(type) * x.bound;
  if (result.bound > kSmall && x.error == 0 && !tensor::IsComplex(type)) {  // The conversion itself is exact enough.
    result.array = builder->Binary(Opcode::kMaximum, result.array, Splat(builder, result.array, -kSmall));
    result.array = builder->Binary(Opcode::kMinimum, result.array, Splat(builder, result.array, kSmall));
    result.bound = kSmall;
  }
  return result;
}

Sample RandomValues::FitDims(Builder* builder, Sample x, const Dims& dims) {
  if (x.dims() == dims) return x;
  // Too many dimensions: the first of the leading ones; too few: repeated.
  while (x.ndim() > std::ssize(dims)) {
    Dims limit = x.dims();
    if (limit[0] == 0) return Fresh(builder, x.type(), dims);
    limit[0] = 1;
    x.array = builder->Slice(x.array, Dims(limit.size(), 0), limit);
    x.array = builder->Reshape(x.array, Dims(limit.begin() + 1, limit.end()));
  }
  const size_t missing = dims.size() - x.dims().size();
  if (missing > 0) {
    Dims sizes(dims.begin(), dims.begin() + missing), map;
    for (int64_t d = 0; d < x.ndim(); ++d) {
      sizes.push_back(x.dims()[d]);
      map.push_back(d + static_cast<int64_t>(missing));
    }
    x.array = builder->Broadcast(x.array, sizes, map);
  }
  Dims limit = x.dims();
  std::vector<hlo::PaddingDimension> padding(dims.size());
  bool pads = false;
  for (size_t d = 0; d < dims.size(); ++d) {
    limit[d] = std::min(limit[d], dims[d]);
    padding[d].high = dims[d] - limit[d];
    pads |= padding[d].high > 0;
  }
  if (limit != x.dims()) x.array = builder->Slice(x.array, Dims(limit.size(), 0), limit);
  if (pads) x.array = builder->Pad(x.array, builder->Scalar(x.type(), 1), padding);
  x.bound = std::max(x.bound, 1.0);
  return x;
}

Sample RandomValues::Fit(Builder* builder, Sample x, ElementType type, const Dims& dims) {
  return FitDims(builder, ConvertTo(builder, x, type), dims);
}

}  // namespace xlad::compiler
