// gather and scatter: they read and write slices of one array at start indices from another array. The array with
// the slices (the operand of a gather, the input of a scatter) is called the "big array" here. The "small array" is the
// result of a gather or the updates of a scatter.
#include <algorithm>
#include <cstring>

#include "base/containers.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// Reads start indices from the index array, which has one vector of start indices per batch index, along
// index_vector_dim. If index_vector_dim is the number of dimensions of the index array, each element is a vector of one
// start index.
struct IndexReader {
  const Value& indices;
  int64_t vector_dim;
  const Dims& index_map;  // Element i of a vector is the start in dimension index_map[i] of the big array.
  // In dimension big_batching_dims[i] of the big array, the start is the batch index in dimension
  // index_batching_dims[i] of the index array.
  const Dims& big_batching_dims;
  const Dims& index_batching_dims;
  Dims strides;     // Strides of the index array's batch dimensions.
  Dims batch_dims;  // Sizes of the index array's batch dimensions.
  int64_t vector_stride = 0;

  void Prepare() {
    const Dims all = tensor::Strides(indices.dims());
    for (const int64_t d : tensor::Indices(all)) {
      if (d == vector_dim) {
        vector_stride = all[d];
      } else {
        strides.push_back(all[d]);
        batch_dims.push_back(indices.dims()[d]);
      }
    }
  }

  // The start of the slice for `batch` in each dimension of the big array, 0 in dimensions without start indices.
  void Start(const Dims& batch, Dims* start) const {
    std::fill(start->begin(), start->end(), 0);
    const int64_t base = Offset(batch, strides);
    for (const int64_t i : tensor::Indices(index_map)) {
      (*start)[index_map[i]] = IntAt(indices, base + i * vector_stride);
    }
    for (const int64_t i : tensor::Indices(big_batching_dims)) {
      const int64_t from = index_batching_dims[i];
      const int64_t position = batch[from > vector_dim ? from - 1 : from];
      (*start)[big_batching_dims[i]] = position;
    }
  }
};

// The layout of a window in the small array and of the slice that it corresponds to in the big array.
struct WindowGeometry {
  Dims dims;           // The sizes of the window dimensions of the small array.
  Dims big_strides;    // Their strides in the big array.
  Dims small_strides;  // Their strides in the small array.
  Dims full_sizes;     // The slice sizes in all dimensions of the big array; 1 if the small array lacks the dimension.
  Dims batch_strides;  // The strides of the batch dimensions of the small array.
};

// `big` and `small` are the sizes of the two arrays, and `window_dims` are the window dimensions of the small array.
// The small array has no window dimension for the dimensions `dropped` and `batching` of the big array.
WindowGeometry MakeWindow(const Dims& big, const Dims& small, const Dims& window_dims, const Dims& dropped,
                          const Dims& batching) {
  WindowGeometry window;
  const Dims big_strides = tensor::Strides(big), small_strides = tensor::Strides(small);
  int64_t next = 0;
  for (const int64_t d : tensor::Indices(big)) {
    if (Contains(dropped, d) || Contains(batching, d)) {
      window.full_sizes.push_back(1);
      continue;
    }
    const int64_t at = window_dims[next++];
    window.dims.push_back(small[at]);
    window.full_sizes.push_back(small[at]);
    window.big_strides.push_back(big_strides[d]);
    window.small_strides.push_back(small_strides[at]);
  }
  for (const int64_t d : tensor::Indices(small)) {
    if (!Contains(window_dims, d)) window.batch_strides.push_back(small_strides[d]);
  }
  return window;
}

// Start indices are clamped so that the slice is inside the operand. If a slice size is 0 (in a collapsed dimension),
// the result is zeros, as in XLA.
absl::StatusOr<Value> EvalGather(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const GatherDimensions& g = *operation.attributes().gather;
  IndexReader reader{operation.operand(1),
                     g.index_vector_dim,
                     g.start_index_map,
                     g.operand_batching_dims,
                     g.start_indices_batching_dims,
                     {},
                     {}};
  reader.Prepare();
  const tensor::Shape& shape = operation.result();
  Array out(shape);
  if (Contains(operation.attributes().slice_sizes, 0)) return Value(std::move(out));
  const WindowGeometry window =
      MakeWindow(operand.dims(), shape.dims, g.offset_dims, g.collapsed_slice_dims, g.operand_batching_dims);
  const Dims strides = tensor::Strides(operand.dims());
  const int64_t width = tensor::ByteWidth(shape.type);
  Dims start(operand.dims().size());
  StridedView from{0, window.big_strides}, to{0, window.small_strides};
  for (const Dims& batch : tensor::MultiIndices(reader.batch_dims)) {
    reader.Start(batch, &start);
    for (const int64_t d : tensor::Indices(start)) {
      const int64_t size = operation.attributes().slice_sizes[d];
      start[d] = std::clamp<int64_t>(start[d], 0, operand.dims()[d] - size);
    }
    from.offset = Offset(start, strides);
    to.offset = Offset(batch, window.batch_strides);
    CopyStrided({operand.bytes(), from}, {out.bytes(), to}, window.dims, width);
  }
  return Value(std::move(out));
}

// Applies windows of updates to the operands of a scatter.
class Updater {
 public:
  Updater(const Operation& operation, int64_t count) : operation_(operation), count_(count) {
    const Computation& update = *operation.instruction.called()[0];
    const ElementType type = operation.operand(0).type();
    const Instruction& root = *update.root();
    replaces_ = count == 1 && root.opcode() == Opcode::kParameter && root.number() == 1;
    if (count == 1 && !replaces_) fast_ = MatchReducer(update, type, /*wide_sums=*/false);
    for (int64_t k = 0; k < count; ++k) {
      const Value& updates = operation.operand(count + 1 + k);
      // The updates may be floats of a different width than the operand.
      updates_.push_back(fast_.has_value() ? ConvertTo(updates, fast_->type)
                         : replaces_       ? ConvertTo(updates, type)
                                           : updates);
      Value operand = std::move(operation.operands[k]);
      if (fast_.has_value()) operand = ConvertTo(operand, fast_->type);
      outs_.push_back(operand.Take());
    }
  }

  absl::Status Apply(const WindowGeometry& window, int64_t big_offset, int64_t small_offset) {
    const int64_t width = tensor::ByteWidth(outs_[0].shape().type);
    if (replaces_) {
      CopyStrided({updates_[0].bytes(), {small_offset, window.small_strides}},
                  {outs_[0].bytes(), {big_offset, window.big_strides}}, window.dims, width);
      return absl::OkStatus();
    }
    if (tensor::Product(window.dims) == 0) return absl::OkStatus();
    // A call of the combine loop handles all elements along the last window dimension; ApplyByCall handles one element.
    const bool line = fast_.has_value() && !window.dims.empty();
    const Dims outer(window.dims.begin(), window.dims.end() - (line ? 1 : 0));
    for (const Dims& index : tensor::MultiIndices(outer)) {
      const int64_t big = big_offset + Offset(index, window.big_strides);
      const int64_t small = small_offset + Offset(index, window.small_strides);
      if (fast_.has_value()) {
        fast_->combine(outs_[0].bytes().data() + big * width, line ? window.big_strides.back() : 1,
                       updates_[0].bytes().data() + small * width, line ? window.small_strides.back() : 1,
                       line ? window.dims.back() : 1);
      } else {
        XLAD_RETURN_IF_ERROR(ApplyByCall(big, small));
      }
    }
    return absl::OkStatus();
  }

  Value Finish() {
    std::vector<Value> results;
    for (int64_t k = 0; k < count_; ++k) {
      results.push_back(ConvertTo(Value(std::move(outs_[k])), operation_.result(k).type));
    }
    return PackResults(std::move(results), operation_.shape().is_tuple());
  }

 private:
  // The parameters of the update computation are the current elements and the updates.
  absl::Status ApplyByCall(int64_t big, int64_t small) {
    std::vector<Value> arguments;
    for (const Array& out : outs_) {
      Array scalar({out.shape().type, {}});
      const int64_t width = tensor::ByteWidth(out.shape().type);
      std::memcpy(scalar.bytes().data(), out.bytes().data() + big * width, width);
      arguments.emplace_back(std::move(scalar));
    }
    for (const Value& updates : updates_) arguments.push_back(ScalarAt(updates, small));
    XLAD_ASSIGN_OR_RETURN(Value result,
                          operation_.caller.Call(*operation_.instruction.called()[0], std::move(arguments)));
    const std::vector<Value> results = ResultList(std::move(result));
    for (int64_t k = 0; k < count_; ++k) SetElement(&outs_[k], big, results[k]);
    return absl::OkStatus();
  }

  const Operation& operation_;
  int64_t count_;
  bool replaces_ = false;
  std::optional<FastReducer> fast_;
  std::vector<Array> outs_;
  std::vector<Value> updates_;
};

// A window that is not completely inside the operand is skipped. Windows are applied in row-major order of their index.
absl::StatusOr<Value> EvalScatter(const Operation& operation) {
  const ScatterDimensions& s = *operation.attributes().scatter;
  const int64_t count = std::ssize(operation.operands) / 2;
  const Dims dims = operation.operand(0).dims();
  const Value& indices = operation.operand(count);
  IndexReader reader{indices,
                     s.index_vector_dim,
                     s.scatter_dims_to_operand_dims,
                     s.input_batching_dims,
                     s.scatter_indices_batching_dims,
                     {},
                     {}};
  reader.Prepare();
  const Dims& update_dims = operation.operand(count + 1).dims();
  const WindowGeometry window =
      MakeWindow(dims, update_dims, s.update_window_dims, s.inserted_window_dims, s.input_batching_dims);
  const Dims strides = tensor::Strides(dims);
  Updater updater(operation, count);
  Dims start(dims.size());
  for (const Dims& batch : tensor::MultiIndices(reader.batch_dims)) {
    reader.Start(batch, &start);
    bool inside = true;
    for (const int64_t d : tensor::Indices(dims)) {
      inside = inside && start[d] >= 0 && start[d] <= dims[d] - window.full_sizes[d];
    }
    if (inside) {
      XLAD_RETURN_IF_ERROR(updater.Apply(window, Offset(start, strides), Offset(batch, window.batch_strides)));
    }
  }
  return updater.Finish();
}

constexpr EvalRow kGatherRows[] = {{Opcode::kGather, EvalGather}};
constexpr EvalRow kScatterRows[] = {{Opcode::kScatter, EvalScatter}};

}  // namespace

absl::Span<const EvalRow> GatherRows() { return kGatherRows; }
absl::Span<const EvalRow> ScatterRows() { return kScatterRows; }

}  // namespace xlad::hlo::eval
