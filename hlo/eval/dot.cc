// dot, ragged-dot and scaled-dot: products summed over contracting dimensions.
#include "hlo/eval/dot.h"

#include <algorithm>

#include "base/containers.h"
#include "hlo/eval/binary_ops.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// The batch, free and contracting dimensions of an operand.
struct Parts {
  Dims order;      // Batch, free, contracting dimensions; batch, contracting, free if not `contracting_last`.
  Dims free_dims;  // The sizes of the free dimensions.
  // The product of the sizes of the dimensions of each kind.
  int64_t batch = 1, free = 1, contracting = 1;
};

Parts SplitOperand(const Dims& dims, const Dims& batch, const Dims& contracting, bool contracting_last) {
  Parts parts;
  parts.order = batch;
  Dims free;
  for (const int64_t d : tensor::Indices(dims)) {
    if (!Contains(batch, d) && !Contains(contracting, d)) free.push_back(d);
  }
  for (const Dims* list : {contracting_last ? &free : &contracting, contracting_last ? &contracting : &free}) {
    parts.order.insert(parts.order.end(), list->begin(), list->end());
  }
  const auto size = [&](const Dims& list) {
    int64_t product = 1;
    for (const int64_t d : list) product *= dims[d];
    return product;
  };
  for (const int64_t d : free) parts.free_dims.push_back(dims[d]);
  parts.batch = size(batch);
  parts.free = size(free);
  parts.contracting = size(contracting);
  return parts;
}

// out[m, n] += sum over k of lhs[m, k] * rhs[k, n], row by row.
template <typename T>
void MultiplyMatrices(const T* lhs, const T* rhs, T* out, const Parts& left, const Parts& right) {
  for (int64_t m = 0; m < left.free; ++m) {
    T* row = out + m * right.free;
    for (int64_t k = 0; k < left.contracting; ++k) {
      AddScaledRow(row, rhs + k * right.free, lhs[m * left.contracting + k], right.free);
    }
  }
}

// The type of the products and sums: the widest carrier of the result and the operands. Integer operands count only if
// the result is an integer, and the other operands only if it is not.
ElementType SumCarrier(const Operation& operation) {
  ElementType widest = CarrierOf(operation.result().type);
  for (int64_t i = 0; i < 2; ++i) {
    const ElementType carrier = CarrierOf(operation.operand(i).type());
    const bool same_kind = tensor::IsInteger(carrier) == tensor::IsInteger(widest);
    if (same_kind && tensor::BitWidth(carrier) > tensor::BitWidth(widest)) widest = carrier;
  }
  return widest;
}

// The dot in type `sum`. The dimensions of the result are batch, lhs free, rhs free.
Value DotValues(const Value& lhs, const Value& rhs, const DotDimensions& dimensions, ElementType sum) {
  const Parts left = SplitOperand(lhs.dims(), dimensions.lhs_batch, dimensions.lhs_contracting, true);
  const Parts right = SplitOperand(rhs.dims(), dimensions.rhs_batch, dimensions.rhs_contracting, false);
  const Value a = ConvertTo(TransposeValue(lhs, left.order), sum);
  const Value b = ConvertTo(TransposeValue(rhs, right.order), sum);
  Dims dims;
  for (const int64_t d : dimensions.lhs_batch) dims.push_back(lhs.dims()[d]);
  dims.insert(dims.end(), left.free_dims.begin(), left.free_dims.end());
  dims.insert(dims.end(), right.free_dims.begin(), right.free_dims.end());
  Array out({sum, dims});
  VisitCarrier(sum, [&]<typename T>() {
    for (int64_t i = 0; i < left.batch; ++i) {
      MultiplyMatrices(a.values<T>().data() + i * left.free * left.contracting,
                       b.values<T>().data() + i * right.free * right.contracting,
                       out.values<T>().data() + i * left.free * right.free, left, right);
    }
  });
  return Value(std::move(out));
}

absl::StatusOr<Value> EvalDot(const Operation& operation) {
  if (operation.operands.size() != 2) {
    return absl::UnimplementedError("dot with sparsity metadata is not evaluated; remove the sparsity");
  }
  const ElementType sum = SumCarrier(operation);
  return ConvertTo(DotValues(operation.operand(0), operation.operand(1), *operation.attributes().dot, sum),
                   operation.result().type);
}

// A copy of `value` with zeros at the indices of `dimension` outside of [start, start + size).
Value KeepRange(const Value& value, int64_t dimension, int64_t start, int64_t size) {
  Array out(value.shape());
  StridedView view = RowMajor(value.dims());
  Dims box = value.dims();
  start = std::clamp<int64_t>(start, 0, box[dimension]);
  box[dimension] = std::clamp<int64_t>(size, 0, box[dimension] - start);
  view.offset = start * view.strides[dimension];
  CopyStrided({value.bytes(), view}, {out.bytes(), view}, box, tensor::ByteWidth(value.type()));
  return Value(std::move(out));
}

// Renumbers dimensions after dimension `dropped` was removed.
void DropDimension(Dims* dims, int64_t dropped) {
  for (int64_t& d : *dims) d -= d > dropped ? 1 : 0;
}

// Group g has sizes[g] consecutive indices of the ragged dimension of lhs. If that dimension is free, these rows
// are multiplied by rhs[g]. If it is contracting, result[g] is the sum over these indices. If it is a batch dimension,
// the result is that of dot.
absl::StatusOr<Value> EvalRaggedDot(const Operation& operation) {
  const Attributes& attributes = operation.attributes();
  const Value &lhs = operation.operand(0), &rhs = operation.operand(1), &sizes = operation.operand(2);
  DotDimensions dimensions = *attributes.dot;
  const ElementType sum = SumCarrier(operation), type = operation.result().type;
  if (attributes.ragged_dims.size() != 1 || sizes.dims().size() != 1) {
    return absl::UnimplementedError(
        "ragged-dot is evaluated only with one ragged dimension and a one-dimensional list of group sizes");
  }
  const int64_t ragged = attributes.ragged_dims[0];
  if (Contains(dimensions.lhs_batch, ragged)) return ConvertTo(DotValues(lhs, rhs, dimensions, sum), type);
  const bool contracting = Contains(dimensions.lhs_contracting, ragged);
  if (!contracting) {
    DropDimension(&dimensions.rhs_batch, attributes.group_dims[0]);
    DropDimension(&dimensions.rhs_contracting, attributes.group_dims[0]);
  }
  Array out({sum, operation.result().dims});
  const CombineLoop add = FindCombineLoop(Opcode::kAdd, sum);
  const int64_t groups = sizes.elements();
  const int64_t part = contracting && groups > 0 ? out.elements() / groups : 0;
  int64_t start = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t size = std::clamp<int64_t>(IntAt(sizes, g), 0, lhs.dims()[ragged]);
    const Value own = contracting ? rhs : SliceAt(rhs, attributes.group_dims[0], g);
    const Value product = DotValues(KeepRange(lhs, ragged, start, size), own, dimensions, sum);
    add(out.bytes().data() + g * part * tensor::ByteWidth(sum), 1, product.bytes().data(), 1, product.elements());
    start += size;
  }
  return ConvertTo(Value(std::move(out)), type);
}

// Multiplies each operand by its scales and returns the dot. Each scale applies to a block of elements.
absl::StatusOr<Value> EvalScaledDot(const Operation& operation) {
  Value scaled[2];
  for (int64_t i = 0; i < 2; ++i) {
    const Value operand = ConvertTo(operation.operand(i), ElementType::kF32);
    const Value scale = ConvertTo(operation.operand(i + 2), ElementType::kF32);
    Array out(operand.shape());
    const Dims& dims = operand.dims();
    const Dims scale_strides = tensor::Strides(scale.dims());
    int64_t n = 0;
    for (const Dims& index : tensor::MultiIndices(dims)) {
      int64_t from = 0;
      for (const int64_t d : tensor::Indices(scale.dims())) {
        from += index[d] * scale.dims()[d] / dims[d] * scale_strides[d];
      }
      out.values<float>()[n] = operand.values<float>()[n] * scale.values<float>()[from];
      ++n;
    }
    scaled[i] = Value(std::move(out));
  }
  const Value product = DotValues(scaled[0], scaled[1], *operation.attributes().dot, ElementType::kF32);
  return ConvertTo(product, operation.result().type);
}

constexpr EvalRow kDotRows[] = {
    {Opcode::kDot, EvalDot},
    {Opcode::kRaggedDot, EvalRaggedDot},
    {Opcode::kScaledDot, EvalScaledDot},
};

}  // namespace

absl::Span<const EvalRow> DotRows() { return kDotRows; }

}  // namespace xlad::hlo::eval
