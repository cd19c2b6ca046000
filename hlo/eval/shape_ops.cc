// Instructions that move elements and compute nothing: broadcast, reshape, transpose, slice, pad, ...
#include <algorithm>

#include "hlo/eval/numeric.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

absl::StatusOr<Value> EvalIota(const Operation& operation) {
  const tensor::Shape& shape = operation.result();
  const int64_t dimension = operation.instruction.dimensions().empty() ? 0 : operation.instruction.dimensions()[0];
  const int64_t stride = tensor::Strides(shape.dims)[dimension];
  const int64_t size = shape.dims[dimension];
  return VisitCarrier(CarrierOf(shape.type), [&]<typename T>() -> absl::StatusOr<Value> {
    Array out({CarrierOf(shape.type), shape.dims});
    const auto values = out.values<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t position = static_cast<int64_t>(i) / stride % size;
      if constexpr (ComplexCarrier<T>) {
        values[i] = T(static_cast<typename T::value_type>(position));
      } else {
        values[i] = static_cast<T>(position);
      }
    }
    return Value(Narrow(std::move(out), shape.type));
  });
}

absl::StatusOr<Value> EvalBroadcast(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& shape = operation.result();
  Walk walk{0, Dims(shape.dims.size(), 0)};
  const Dims strides = tensor::Strides(operand.dims());
  const Dims& dimensions = operation.instruction.dimensions();
  for (size_t d = 0; d < dimensions.size(); ++d) walk.strides[dimensions[d]] = strides[d];
  return Value(ReadStrided(operand, walk, shape));
}

absl::StatusOr<Value> EvalReshape(const Operation& operation) {
  return operation.operand(0).WithShape(operation.result());
}

absl::StatusOr<Value> EvalIdentity(const Operation& operation) { return operation.operand(0); }

absl::StatusOr<Value> EvalTranspose(const Operation& operation) {
  return TransposeValue(operation.operand(0), operation.instruction.dimensions());
}

absl::StatusOr<Value> EvalSlice(const Operation& operation) {
  const Value& operand = operation.operand(0);
  Walk walk = Dense(operand.dims());
  for (size_t d = 0; d < walk.strides.size(); ++d) {
    const SliceDimension& slice = operation.attributes().slice[d];
    walk.offset += slice.start * walk.strides[d];
    // A huge stride is legal where it is never taken.
    walk.strides[d] = operation.result().dims[d] > 1 ? walk.strides[d] * slice.stride : 0;
  }
  return Value(ReadStrided(operand, walk, operation.result()));
}

absl::StatusOr<Value> EvalReverse(const Operation& operation) {
  const Value& operand = operation.operand(0);
  Walk walk = Dense(operand.dims());
  for (const int64_t dimension : operation.instruction.dimensions()) {
    const size_t d = dimension;
    walk.offset += (operand.dims()[d] - 1) * walk.strides[d];
    walk.strides[d] = -walk.strides[d];
  }
  return Value(ReadStrided(operand, walk, operation.result()));
}

absl::StatusOr<Value> EvalConcatenate(const Operation& operation) {
  const tensor::Shape& shape = operation.result();
  const size_t dimension = operation.instruction.dimensions()[0];
  Array out(shape);
  Walk to = Dense(shape.dims);
  for (const Value& operand : operation.operands) {
    CopyStrided({operand.bytes(), Dense(operand.dims())}, {out.bytes(), to}, operand.dims(),
                tensor::ByteWidth(shape.type));
    to.offset += operand.dims()[dimension] * to.strides[dimension];
  }
  return Value(std::move(out));
}

// The operand's elements [first, first + count) of a dimension that land inside the result, and where the first does.
struct Landing {
  int64_t first = 0, count = 0, position = 0;
};

// Element i lands at low + i * (interior + 1); a negative low or high cuts off. In 128 bits, because a padding may be
// anything where there is nothing to pad.
Landing LandingOf(const PaddingDimension& padding, int64_t size, int64_t result) {
  using Wide = __int128;
  const Wide low = padding.low, step = Wide{padding.interior} + 1, room = result - low;
  const Wide first = low >= 0 ? 0 : (-low + step - 1) / step;
  const Wide end = std::min<Wide>(size, room <= 0 ? 0 : (room + step - 1) / step);
  if (first >= end) return {};
  return {static_cast<int64_t>(first), static_cast<int64_t>(end - first), static_cast<int64_t>(low + first * step)};
}

absl::StatusOr<Value> EvalPad(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& shape = operation.result();
  Array out = Filled(shape, operation.operand(1).bytes());
  Walk from = Dense(operand.dims()), to = Dense(shape.dims);
  Dims counts;
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    const PaddingDimension& padding = operation.attributes().padding[d];
    const Landing landing = LandingOf(padding, operand.dims()[d], shape.dims[d]);
    if (landing.count == 0) return Value(std::move(out));
    counts.push_back(landing.count);
    from.offset += landing.first * from.strides[d];
    to.offset += landing.position * to.strides[d];
    to.strides[d] = landing.count > 1 ? to.strides[d] * (padding.interior + 1) : 0;
  }
  CopyStrided({operand.bytes(), from}, {out.bytes(), to}, counts, tensor::ByteWidth(shape.type));
  return Value(std::move(out));
}

// Elements from most major to most minor as the layout has them in memory; row-major where there is none.
Dims MajorToMinor(const Shape& shape) {
  Dims order;
  for (int64_t d = 0; d < shape.ndim(); ++d) order.push_back(d);
  if (shape.layout() != nullptr && shape.layout()->minor_to_major.size() == order.size()) {
    order.assign(shape.layout()->minor_to_major.rbegin(), shape.layout()->minor_to_major.rend());
  }
  return order;
}

// The operand's memory under the result's shape and layout.
absl::StatusOr<Value> EvalBitcast(const Operation& operation) {
  const Value& operand = operation.operand(0);
  if (operand.is_tuple() || !operation.shape().is_array()) return operand;
  if (operation.result().bytes() != operand.shape().bytes()) {
    return absl::UnimplementedError("bitcast between types of different widths has no meaning on unpacked elements");
  }
  const Value memory = TransposeValue(operand, MajorToMinor(operation.instruction.operand(0)->shape()));
  const Dims order = MajorToMinor(operation.shape());
  tensor::Shape physical{operation.result().type, {}};
  Dims inverse(order.size());
  for (size_t d = 0; d < order.size(); ++d) {
    physical.dims.push_back(operation.shape().dim(order[d]));
    inverse[order[d]] = static_cast<int64_t>(d);
  }
  return TransposeValue(memory.WithShape(std::move(physical)), inverse);
}

absl::StatusOr<Value> EvalGetDimensionSize(const Operation& operation) {
  const size_t dimension = operation.instruction.dimensions()[0];
  const auto size = static_cast<int32_t>(operation.operand(0).dims()[dimension]);
  return Value(Array::FromValues<int32_t>(ElementType::kS32, {}, {size}));
}

absl::StatusOr<Value> EvalSetDimensionSize(const Operation& operation) {
  const size_t dimension = operation.instruction.dimensions()[0];
  const int64_t full = operation.operand(0).dims()[dimension], size = IntAt(operation.operand(1), 0);
  if (size == full) return operation.operand(0);
  return absl::UnimplementedError(absl::StrCat("found size ", size, " for dimension ", dimension, " of ", full,
                                               " elements; dynamic sizes are not evaluated, make the program static"));
}

constexpr EvalRow kRows[] = {
    {Opcode::kIota, EvalIota},
    {Opcode::kBroadcast, EvalBroadcast},
    {Opcode::kReshape, EvalReshape},
    {Opcode::kCopy, EvalIdentity},
    {Opcode::kOptBarrier, EvalIdentity},
    {Opcode::kDomain, EvalIdentity},
    {Opcode::kAddDependency, EvalIdentity},
    {Opcode::kTranspose, EvalTranspose},
    {Opcode::kSlice, EvalSlice},
    {Opcode::kReverse, EvalReverse},
    {Opcode::kConcatenate, EvalConcatenate},
    {Opcode::kPad, EvalPad},
    {Opcode::kBitcast, EvalBitcast},
    {Opcode::kGetDimensionSize, EvalGetDimensionSize},
    {Opcode::kSetDimensionSize, EvalSetDimensionSize},
};

}  // namespace

absl::Span<const EvalRow> ShapeRows() { return kRows; }

}  // namespace xlad::hlo::eval
