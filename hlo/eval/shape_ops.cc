// Instructions that move elements without computing: broadcast, reshape, transpose, slice, pad and similar; and iota.
#include <algorithm>

#include "hlo/analysis/bitcast.h"
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
    for (const int64_t i : tensor::Indices(values)) values[i] = T(i / stride % size);
    return Value(Narrow(std::move(out), shape.type));
  });
}

absl::StatusOr<Value> EvalBroadcast(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& shape = operation.result();
  StridedView view{0, Dims(shape.dims.size(), 0)};
  const Dims strides = tensor::Strides(operand.dims());
  const Dims& dimensions = operation.instruction.dimensions();
  for (const int64_t d : tensor::Indices(dimensions)) view.strides[dimensions[d]] = strides[d];
  return Value(ReadStrided(operand, view, shape));
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
  StridedView view = RowMajor(operand.dims());
  for (const int64_t d : tensor::Indices(view.strides)) {
    const SliceDimension& slice = operation.attributes().slice[d];
    view.offset += slice.start * view.strides[d];
    // The stride may be huge if the result has one element.
    view.strides[d] = operation.result().dims[d] > 1 ? view.strides[d] * slice.stride : 0;
  }
  return Value(ReadStrided(operand, view, operation.result()));
}

absl::StatusOr<Value> EvalReverse(const Operation& operation) {
  const Value& operand = operation.operand(0);
  StridedView view = RowMajor(operand.dims());
  for (const int64_t d : operation.instruction.dimensions()) {
    view.offset += (operand.dims()[d] - 1) * view.strides[d];
    view.strides[d] = -view.strides[d];
  }
  return Value(ReadStrided(operand, view, operation.result()));
}

absl::StatusOr<Value> EvalConcatenate(const Operation& operation) {
  return Concatenate(operation.operands, operation.instruction.dimensions()[0]);
}

// The elements [first, first + count) of one dimension of the operand are inside the padded result. `position` is the
// index of the first of them in the result.
struct PaddedRange {
  int64_t first = 0, count = 0, position = 0;
};

// Element i of the operand is element low + i * (interior + 1) of the result. A negative low or high removes elements.
// The computation uses 128 bits, because the padding of a dimension of size 0 can be any 64-bit number.
PaddedRange PaddedRangeOf(const PaddingDimension& padding, int64_t size, int64_t result) {
  using Wide = __int128;
  const Wide low = padding.low, step = Wide{padding.interior} + 1, room = result - low;
  const Wide first = low >= 0 ? 0 : (-low + step - 1) / step;
  const Wide end = std::min<Wide>(size, room <= 0 ? 0 : (room + step - 1) / step);
  if (first >= end) return {};
  PaddedRange range;
  range.first = first;
  range.count = end - first;
  range.position = low + first * step;
  return range;
}

absl::StatusOr<Value> EvalPad(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& shape = operation.result();
  Array out = Filled(shape, operation.operand(1).bytes());
  StridedView from = RowMajor(operand.dims()), to = RowMajor(shape.dims);
  Dims counts;
  for (const int64_t d : tensor::Indices(shape.dims)) {
    const PaddingDimension& padding = operation.attributes().padding[d];
    const PaddedRange range = PaddedRangeOf(padding, operand.dims()[d], shape.dims[d]);
    if (range.count == 0) return Value(std::move(out));
    counts.push_back(range.count);
    from.offset += range.first * from.strides[d];
    to.offset += range.position * to.strides[d];
    to.strides[d] = range.count > 1 ? to.strides[d] * (padding.interior + 1) : 0;
  }
  CopyStrided({operand.bytes(), from}, {out.bytes(), to}, counts, tensor::ByteWidth(shape.type));
  return Value(std::move(out));
}

// Reinterprets the operand's memory, in its layout, as the result's shape and layout.
absl::StatusOr<Value> EvalBitcast(const Operation& operation) {
  const Value& operand = operation.operand(0);
  XLAD_RETURN_IF_ERROR(CheckBitcast(operation.instruction));
  if (operand.is_tuple() || !operation.shape().is_array()) return operand;
  const Value memory = TransposeValue(operand, MajorToMinor(operation.instruction.operand(0)->shape()));
  const Dims order = MajorToMinor(operation.shape());
  tensor::Shape physical{operation.result().type, tensor::Select(operation.shape().dims(), order)};
  return TransposeValue(memory.WithShape(std::move(physical)), tensor::Inverse(order));
}

absl::StatusOr<Value> EvalGetDimensionSize(const Operation& operation) {
  const int64_t dimension = operation.instruction.dimensions()[0];
  const std::vector<int32_t> size(1, operation.operand(0).dims()[dimension]);
  return Value(Array::FromValues(ElementType::kS32, {}, size));
}

absl::StatusOr<Value> EvalSetDimensionSize(const Operation& operation) {
  const int64_t dimension = operation.instruction.dimensions()[0];
  const int64_t full = operation.operand(0).dims()[dimension], size = IntAt(operation.operand(1), 0);
  if (size == full) return operation.operand(0);
  return absl::UnimplementedError(
      absl::StrCat("found size ", size, " for dimension ", dimension, " of ", full,
                   " elements, expected the full size because dynamic sizes are not evaluated"));
}

constexpr EvalRow kShapeOpsRows[] = {
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

absl::Span<const EvalRow> ShapeRows() { return kShapeOpsRows; }

}  // namespace xlad::hlo::eval
