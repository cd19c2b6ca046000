// gather and scatter: slices of one array at positions that another array lists.
#include <algorithm>
#include <cstring>

#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

bool Contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// How positions are read from the index array: one vector (or, where index_vector_dim lies behind the last
// dimension, one number) for each batch index.
struct IndexReader {
  const Value& indices;
  int64_t vector_dim;
  const Dims& index_map;            // Element i of a vector is for this dimension of the big array.
  const Dims& big_batching_dims;    // These dimensions of the big array take their position ...
  const Dims& index_batching_dims;  // ... from the batch index at these dimensions of the index array.
  Dims strides;                     // Of the index array's batch dimensions.
  Dims batch_dims;                  // Their sizes.
  int64_t vector_stride = 0;

  void Prepare() {
    const Dims all = tensor::Strides(indices.dims());
    for (int64_t d = 0; d < std::ssize(all); ++d) {
      if (d == vector_dim) {
        vector_stride = all[d];
      } else {
        strides.push_back(all[d]);
        batch_dims.push_back(indices.dims()[d]);
      }
    }
  }

  // The start of the slice for `batch` in every dimension of the big array; 0 where nothing says otherwise.
  void Start(const Dims& batch, Dims* start) const {
    std::fill(start->begin(), start->end(), 0);
    int64_t base = 0;
    for (size_t d = 0; d < batch.size(); ++d) base += batch[d] * strides[d];
    for (size_t i = 0; i < index_map.size(); ++i) {
      (*start)[index_map[i]] = IntAt(indices, base + static_cast<int64_t>(i) * vector_stride);
    }
    for (size_t i = 0; i < big_batching_dims.size(); ++i) {
      const int64_t from = index_batching_dims[i];
      const int64_t position = batch[from > vector_dim ? from - 1 : from];
      (*start)[big_batching_dims[i]] = position;
    }
  }
};

// The window part of a small array (gather's result, scatter's updates) against the big array.
struct WindowWalk {
  Dims dims;           // Window sizes of the dimensions that the small array has.
  Dims big_strides;    // Their strides in the big array ...
  Dims small_strides;  // ... and in the small one.
  Dims full_sizes;     // Window sizes in every dimension of the big array; 1 where it is dropped.
  Dims batch_strides;  // The small array's other dimensions.
};

WindowWalk MakeWindow(const Dims& big, const Dims& small, const Dims& window_dims, const Dims& dropped,
                      const Dims& batching) {
  WindowWalk walk;
  const Dims big_strides = tensor::Strides(big), small_strides = tensor::Strides(small);
  size_t next = 0;
  for (int64_t d = 0; d < std::ssize(big); ++d) {
    if (Contains(dropped, d) || Contains(batching, d)) {
      walk.full_sizes.push_back(1);
      continue;
    }
    const size_t at = window_dims[next++];
    walk.dims.push_back(small[at]);
    walk.full_sizes.push_back(small[at]);
    walk.big_strides.push_back(big_strides[d]);
    walk.small_strides.push_back(small_strides[at]);
  }
  for (int64_t d = 0; d < std::ssize(small); ++d) {
    if (!Contains(window_dims, d)) walk.batch_strides.push_back(small_strides[d]);
  }
  return walk;
}

int64_t Offset(const Dims& index, const Dims& strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

// Out-of-bounds starts are clamped so that the slice fits. Slices of a collapsed dimension may have size 0: XLA gives
// zeros in their place.
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
  const WindowWalk window =
      MakeWindow(operand.dims(), shape.dims, g.offset_dims, g.collapsed_slice_dims, g.operand_batching_dims);
  const Dims strides = tensor::Strides(operand.dims());
  const int64_t batches = tensor::Product(reader.batch_dims), width = tensor::ByteWidth(shape.type);
  Dims batch(reader.batch_dims.size(), 0), start(operand.dims().size());
  Walk from{0, window.big_strides}, to{0, window.small_strides};
  for (int64_t i = 0; i < batches; ++i) {
    reader.Start(batch, &start);
    for (size_t d = 0; d < start.size(); ++d) {
      const int64_t size = operation.attributes().slice_sizes[d];
      start[d] = std::clamp<int64_t>(start[d], 0, operand.dims()[d] - size);
    }
    from.offset = Offset(start, strides);
    to.offset = Offset(batch, window.batch_strides);
    CopyStrided({operand.bytes(), from}, {out.bytes(), to}, window.dims, width);
    tensor::NextIndex(reader.batch_dims, absl::MakeSpan(batch));
  }
  return Value(std::move(out));
}

// How one window of updates enters the operands.
class Updater {
 public:
  Updater(const Operation& operation, size_t count) : operation_(operation), count_(count) {
    const Computation& update = *operation.instruction.called()[0];
    const ElementType type = operation.operand(0).type();
    const Instruction& root = *update.root();
    replaces_ = count == 1 && root.opcode() == Opcode::kParameter && root.number() == 1;
    if (count == 1 && !replaces_) fast_ = RecogniseReducer(update, type, /*wide_sums=*/false);
    for (size_t k = 0; k < count; ++k) {
      const Value& updates = operation.operand(count + 1 + k);
      updates_.push_back(fast_.has_value() ? ConvertTo(updates, fast_->type) : updates);
      Value operand = std::move(operation.operands[k]);
      if (fast_.has_value()) operand = ConvertTo(operand, fast_->type);
      outs_.push_back(operand.Take());
    }
  }

  absl::Status Apply(const WindowWalk& window, int64_t big_offset, int64_t small_offset) {
    const int64_t width = tensor::ByteWidth(outs_[0].shape().type);
    if (replaces_) {
      CopyStrided({updates_[0].bytes(), {small_offset, window.small_strides}},
                  {outs_[0].bytes(), {big_offset, window.big_strides}}, window.dims, width);
      return absl::OkStatus();
    }
    if (tensor::Product(window.dims) == 0) return absl::OkStatus();
    // Lines of the last window dimension; calls go element by element.
    const size_t outer_count = window.dims.empty() || !fast_.has_value() ? window.dims.size() : window.dims.size() - 1;
    const Dims outer(window.dims.begin(), window.dims.begin() + static_cast<ptrdiff_t>(outer_count));
    Dims index(outer_count, 0);
    do {
      const int64_t big = big_offset + Offset(index, window.big_strides);
      const int64_t small = small_offset + Offset(index, window.small_strides);
      if (fast_.has_value()) {
        const bool line = outer_count < window.dims.size();
        fast_->combine(outs_[0].bytes().data() + big * width, line ? window.big_strides.back() : 1,
                       updates_[0].bytes().data() + small * width, line ? window.small_strides.back() : 1,
                       line ? window.dims.back() : 1);
      } else {
        XLAD_RETURN_IF_ERROR(ApplyByCall(big, small));
      }
    } while (tensor::NextIndex(outer, absl::MakeSpan(index)));
    return absl::OkStatus();
  }

  Value Finish() {
    std::vector<Value> results;
    for (size_t k = 0; k < count_; ++k) {
      results.push_back(ConvertTo(Value(std::move(outs_[k])), operation_.result(static_cast<int64_t>(k)).type));
    }
    return PackResults(std::move(results), operation_.shape().is_tuple());
  }

 private:
  // The update computation takes the current elements, then the updates.
  absl::Status ApplyByCall(int64_t big, int64_t small) {
    std::vector<Value> arguments;
    for (const Array& out : outs_) {
      Array scalar({out.shape().type, {}});
      const size_t width = scalar.bytes().size();
      std::memcpy(scalar.bytes().data(), out.bytes().data() + static_cast<size_t>(big) * width, width);
      arguments.emplace_back(std::move(scalar));
    }
    for (const Value& updates : updates_) arguments.push_back(ScalarAt(updates, small));
    XLAD_ASSIGN_OR_RETURN(Value result,
                          operation_.caller.Call(*operation_.instruction.called()[0], std::move(arguments)));
    const std::vector<Value> results = ResultList(std::move(result));
    for (size_t k = 0; k < count_; ++k) SetElement(&outs_[k], big, results[k]);
    return absl::OkStatus();
  }

  const Operation& operation_;
  size_t count_;
  bool replaces_ = false;
  std::optional<FastReducer> fast_;
  std::vector<Array> outs_;
  std::vector<Value> updates_;
};

// A window that does not lie inside the operand is left out whole. Updates enter in row-major order of their index.
absl::StatusOr<Value> EvalScatter(const Operation& operation) {
  const ScatterDimensions& s = *operation.attributes().scatter;
  const size_t count = operation.operands.size() / 2;
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
  const WindowWalk window =
      MakeWindow(dims, update_dims, s.update_window_dims, s.inserted_window_dims, s.input_batching_dims);
  const Dims strides = tensor::Strides(dims);
  Updater updater(operation, count);
  Dims batch(reader.batch_dims.size(), 0), start(dims.size());
  const int64_t batches = tensor::Product(reader.batch_dims);
  for (int64_t i = 0; i < batches; ++i) {
    reader.Start(batch, &start);
    bool inside = true;
    for (size_t d = 0; d < dims.size(); ++d) {
      inside = inside && start[d] >= 0 && start[d] <= dims[d] - window.full_sizes[d];
    }
    if (inside) {
      XLAD_RETURN_IF_ERROR(updater.Apply(window, Offset(start, strides), Offset(batch, window.batch_strides)));
    }
    tensor::NextIndex(reader.batch_dims, absl::MakeSpan(batch));
  }
  return updater.Finish();
}

constexpr EvalRow kGatherRows[] = {{Opcode::kGather, EvalGather}};
constexpr EvalRow kScatterRows[] = {{Opcode::kScatter, EvalScatter}};

}  // namespace

absl::Span<const EvalRow> GatherRows() { return kGatherRows; }
absl::Span<const EvalRow> ScatterRows() { return kScatterRows; }

}  // namespace xlad::hlo::eval
