// dot and its relatives: products summed over contracting dimensions.
#include "hlo/eval/dot.h"

#include <algorithm>
#include <numeric>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// The three parts of an operand's dimensions, and the sizes of each multiplied out.
struct Parts {
  Dims order;  // batch, then free and contracting in the order asked for
  Dims free_dims;
  int64_t batch = 1, free = 1, contracting = 1;
};

Parts SplitOperand(const Dims& dims, const Dims& batch, const Dims& contracting, bool contracting_last) {
  Parts parts;
  parts.order = batch;
  Dims free;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    const auto in = [d](const Dims& list) { return std::find(list.begin(), list.end(), d) != list.end(); };
    if (!in(batch) && !in(contracting)) free.push_back(d);
  }
  for (const Dims* list : {contracting_last ? &free : &contracting, contracting_last ? &contracting : &free}) {
    parts.order.insert(parts.order.end(), list->begin(), list->end());
  }
  const auto size = [&](const Dims& list) {
    return std::accumulate(list.begin(), list.end(), int64_t{1},
                           [&](int64_t product, int64_t d) { return product * dims[d]; });
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

// The type that products are summed in: the widest carrier of operands and result.
ElementType SumCarrier(const Operation& operation) {
  ElementType widest = CarrierOf(operation.result().type);
  for (int64_t i = 0; i < 2; ++i) {
    const ElementType carrier = CarrierOf(operation.operand(i).type());
    const bool same_kind = tensor::IsInteger(carrier) == tensor::IsInteger(widest);
    if (same_kind && tensor::BitWidth(carrier) > tensor::BitWidth(widest)) widest = carrier;
  }
  return widest;
}

// batch, lhs free, rhs free: the result's dimensions in order.
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

// `value` with everything outside [start, start + size) of `dimension` zero.
Value KeepRange(const Value& value, int64_t dimension, int64_t start, int64_t size) {
  Array out(value.shape());
  Walk walk = Dense(value.dims());
  const size_t d = dimension;
  Dims box = value.dims();
  start = std::clamp<int64_t>(start, 0, box[d]);
  box[d] = std::clamp<int64_t>(size, 0, box[d] - start);
  walk.offset = start * walk.strides[d];
  CopyStrided({value.bytes(), walk}, {out.bytes(), walk}, box, tensor::ByteWidth(value.type()));
  return Value(std::move(out));
}

// Slice `g` of `dimension`, without it.
Value TakeGroup(const Value& value, int64_t dimension, int64_t g) {
  const size_t d = dimension;
  Walk walk = Dense(value.dims());
  walk.offset = g * walk.strides[d];
  walk.strides.erase(walk.strides.begin() + dimension);
  tensor::Shape shape = value.shape();
  shape.dims.erase(shape.dims.begin() + static_cast<ptrdiff_t>(d));
  return Value(ReadStrided(value, walk, shape));
}

void DropDimension(Dims* dims, int64_t dropped) {
  for (int64_t& d : *dims) d -= d > dropped ? 1 : 0;
}

bool Contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// Group g owns group_sizes[g] consecutive indices of lhs's ragged dimension. A free ragged dimension: those rows are
// multiplied by rhs[g]; a contracting one: result[g] sums over those indices only; a batch one: an ordinary dot.
absl::StatusOr<Value> EvalRaggedDot(const Operation& operation) {
  const Attributes& attributes = operation.attributes();
  const Value &lhs = operation.operand(0), &rhs = operation.operand(1), &sizes = operation.operand(2);
  DotDimensions dimensions = *attributes.dot;
  const ElementType sum = SumCarrier(operation), type = operation.result().type;
  if (attributes.ragged_dims.size() != 1 || sizes.dims().size() != 1) {
    return absl::UnimplementedError("ragged-dot is evaluated for one ragged dimension and one list of group sizes");
  }
  const int64_t ragged = attributes.ragged_dims[0];
  if (Contains(dimensions.lhs_batch, ragged)) return ConvertTo(DotValues(lhs, rhs, dimensions, sum), type);
  const bool contracting = Contains(dimensions.lhs_contracting, ragged);
  if (!contracting) {
    DropDimension(&dimensions.rhs_batch, attributes.group_dims[0]);
    DropDimension(&dimensions.rhs_contracting, attributes.group_dims[0]);
  }
  Array out({sum, operation.result().dims});
  const CombineRun add = FindCombine(Opcode::kAdd, sum);
  const int64_t groups = sizes.elements();
  const int64_t part = contracting && groups > 0 ? out.elements() / groups : 0;
  int64_t start = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t size = std::clamp<int64_t>(IntAt(sizes, g), 0, lhs.dims()[ragged]);
    const Value own = contracting ? rhs : TakeGroup(rhs, attributes.group_dims[0], g);
    const Value product = DotValues(KeepRange(lhs, ragged, start, size), own, dimensions, sum);
    add(out.bytes().data() + g * part * tensor::ByteWidth(sum), 1, product.bytes().data(), 1, product.elements());
    start += size;
  }
  return ConvertTo(Value(std::move(out)), type);
}

// Block scales, repeated over the elements of their block, then a dot of the scaled operands.
absl::StatusOr<Value> EvalScaledDot(const Operation& operation) {
  Value scaled[2];
  for (int64_t i = 0; i < 2; ++i) {
    const Value operand = ConvertTo(operation.operand(i), ElementType::kF32);
    const Value scale = ConvertTo(operation.operand(i + 2), ElementType::kF32);
    Array out(operand.shape());
    const Dims& dims = operand.dims();
    const Dims scale_strides = tensor::Strides(scale.dims());
    Dims index(dims.size(), 0);
    for (int64_t at = 0; at < operand.elements(); ++at) {
      int64_t from = 0;
      for (size_t d = 0; d < scale.dims().size(); ++d) {
        from += index[d] * scale.dims()[d] / dims[d] * scale_strides[d];
      }
      const size_t n = at;
      out.values<float>()[n] = operand.values<float>()[n] * scale.values<float>()[from];
      tensor::NextIndex(dims, absl::MakeSpan(index));
    }
    scaled[i] = Value(std::move(out));
  }
  const Value product = DotValues(scaled[0], scaled[1], *operation.attributes().dot, ElementType::kF32);
  return ConvertTo(product, operation.result().type);
}

constexpr EvalRow kRows[] = {
    {Opcode::kDot, EvalDot},
    {Opcode::kRaggedDot, EvalRaggedDot},
    {Opcode::kScaledDot, EvalScaledDot},
};

}  // namespace

absl::Span<const EvalRow> DotRows() { return kRows; }

}  // namespace xlad::hlo::eval
