// The library op attention.
//
// Scores are computed for one block of rows at a time, in per-thread memory. The compiler chooses the number of rows,
// so that a block fits into the second-level cache if possible. A block has all columns, or only the first columns if
// the others are masked. For each block, matrix products compute the scores, all operations on rows are applied to a
// few rows at a time, and products with the final values give the results. The values of a block that products compute
// or read are stored in tiles (AttentionSlot). Operands of products are converted to f32 and rearranged into panels
// (TileProduct in attention_kernels.h) once for each entry of the batch.
//
// A task of a thread is one group of blocks of one entry of the batch. Products that sum over rows have one partial sum
// for each group, and the partial sums are added in the order of the groups. The groups depend on the shapes alone.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/attention_program.h"
#include "runtime/devices/cpu/half_rows.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/indices.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using Kind = AttentionSlot::Kind;

constexpr int64_t kWantedTasks = 32;   // Enough tasks to divide them evenly among the threads.
constexpr int64_t kMinGroupRows = 96;  // A partial sum over fewer rows costs more than it saves.
// An operation is applied to a chunk of at most kRowAlignment rows with about this many elements in total, so that the
// chunk of a value stays in the first-level cache.
constexpr int64_t kChunkElements = 2048;

void LoadFloats(ElementType type, const void* from, int64_t offset, int64_t stride, absl::Span<float> to) {
  const int64_t count = std::ssize(to);
  int64_t i = 0;
  if (type == ElementType::kF32 || type == ElementType::kS32) {
    const float* x = static_cast<const float*>(from) + offset;
    if (stride == 1) {
      std::memcpy(to.data(), x, to.size() * sizeof(float));
    } else {
      for (; i < count; ++i) std::memcpy(&to[i], x + i * stride, sizeof(float));
    }
  } else if (type == ElementType::kBF16) {
    const uint16_t* x = static_cast<const uint16_t*>(from) + offset;
    if (stride == 1) i = AttentionKernelsOfCpu().from_bf16(x, count, to.data());
    for (; i < count; ++i) to[i] = tensor::DecodeBf16(x[i * stride]);
  } else if (type == ElementType::kF16) {
    WidenHalf(static_cast<const uint16_t*>(from) + offset, stride, count, to.data());
  } else {
    const uint8_t* x = static_cast<const uint8_t*>(from) + offset;
    if (stride == 1) i = AttentionKernelsOfCpu().from_predicates(x, count, to.data());
    for (; i < count; ++i) {
      const int32_t bit = x[i * stride] != 0;
      std::memcpy(&to[i], &bit, sizeof(float));
    }
  }
}

// Rounds the numbers to f16 and stores them.
void StoreHalves(absl::Span<const float> from, int64_t stride, uint16_t* to) {
  if (stride == 1) return NarrowHalf(from.data(), std::ssize(from), to);
  std::array<uint16_t, 64> part;  // One call converts many elements, because each call takes time.
  for (; !from.empty(); from.remove_prefix(std::min(from.size(), part.size()))) {
    const int64_t count = std::min(from.size(), part.size());
    NarrowHalf(from.data(), count, part.data());
    for (int64_t i = 0; i < count; ++i) to[i * stride] = part[i];
    to += count * stride;
  }
}

void StoreFloats(ElementType type, absl::Span<const float> from, int64_t offset, int64_t stride, void* to) {
  const int64_t count = std::ssize(from);
  if (type == ElementType::kF32 || type == ElementType::kS32) {
    float* x = static_cast<float*>(to) + offset;
    if (stride == 1) {
      std::memcpy(x, from.data(), from.size() * sizeof(float));
    } else {
      for (int64_t i = 0; i < count; ++i) std::memcpy(x + i * stride, &from[i], sizeof(float));
    }
  } else if (type == ElementType::kBF16) {
    uint16_t* x = static_cast<uint16_t*>(to) + offset;
    for (int64_t i = 0; i < count; ++i) x[i * stride] = tensor::EncodeBf16(from[i]);
  } else if (type == ElementType::kF16) {
    StoreHalves(from, stride, static_cast<uint16_t*>(to) + offset);
  } else {
    uint8_t* x = static_cast<uint8_t*>(to) + offset;
    for (int64_t i = 0; i < count; ++i) {
      int32_t bits;
      std::memcpy(&bits, &from[i], sizeof(bits));
      x[i * stride] = bits != 0;
    }
  }
}

// A matrix of one entry of the batch that is rearranged into panels.
struct Pack {
  int operand = 0;
  // True for the right operand of scores: in a panel, columns are contiguous. Otherwise features are contiguous.
  bool transposed = false;
  int64_t width = 0;   // The number of features.
  int64_t offset = 0;  // The offset in the memory of all packs, in elements.
};

class PreparedAttention final : public PreparedLibraryOp {
 public:
  explicit PreparedAttention(AttentionProgram program)
      : program_(std::move(program)), kernels_(AttentionKernelsOfCpu()), panel_(kernels_.panel) {
    blocks_ = std::ssize(program_.block_columns);
    columns_ = RoundUp(program_.columns, kRowAlignment);
    // Rows at a distance of a large power of two would share cache sets.
    row_stride_ = columns_ % 512 == 0 ? columns_ + kRowAlignment : columns_;
    chunk_rows_ = std::clamp<int64_t>(kChunkElements / row_stride_, 1, std::min(kRowAlignment, program_.block_rows));
    const int64_t wanted = CeilDiv(kWantedTasks, program_.Batches());
    const int64_t most = std::max<int64_t>(1, program_.Rows() / std::max(kMinGroupRows, program_.block_rows));
    group_blocks_ = CeilDiv(blocks_, std::clamp<int64_t>(wanted, 1, most));
    groups_ = CeilDiv(blocks_, group_blocks_);
    Lay();
  }

  size_t buffer_count() const override { return program_.operands.size() + program_.results.size(); }
  int64_t scratch_bytes(int threads) const override {
    return (shared_elements_ + threads * thread_elements_) * sizeof(float);
  }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override {
    return absl::StrCat("attention, blocks of ", program_.block_rows, " rows, ", program_.Batches() * groups_,
                        " tasks");
  }

 private:
  friend class AttentionCall;
  friend class BlockRunner;

  int64_t Panels(int64_t width) const { return CeilDiv(width, panel_); }

  // Assigns places in scratch memory.
  void Lay() {
    for (const AttentionProduct& product : program_.products) {
      packs_.push_back({product.right, true, product.depth, pack_elements_});
      pack_elements_ += RoundUp(Panels(program_.columns) * panel_ * product.depth, kRowAlignment);
    }
    for (const AttentionResult& result : program_.results) {
      if (result.kind == AttentionOp::Result::ROW_PRODUCT) {
        packs_.push_back({result.operand, false, result.width, pack_elements_});
        pack_elements_ += RoundUp(program_.columns * Panels(result.width) * panel_, kRowAlignment);
      }
      const int64_t width = Panels(result.width) * panel_;
      if (result.kind == AttentionOp::Result::COLUMN_PRODUCT) {
        sum_offsets_.push_back(sum_elements_);
        sum_elements_ += columns_ * width;
      }
      if (result.kind != AttentionOp::Result::ROW_VALUE) widest_ = std::max(widest_, width);
    }
    for (const AttentionProduct& product : program_.products) widest_ = std::max(widest_, product.depth);
    tile_elements_ = program_.block_rows * row_stride_;
    side_elements_ = RoundUp(program_.block_rows * widest_, kRowAlignment);
    thread_elements_ = program_.tiles * tile_elements_ + program_.row_slots * chunk_rows_ * row_stride_ +
                       program_.narrow_slots * kRowAlignment + side_elements_;
    if (groups_ == 1) {
      thread_elements_ += pack_elements_ + sum_elements_;
    } else {
      shared_elements_ = program_.Batches() * (pack_elements_ + groups_ * sum_elements_);
    }
  }

  const AttentionProgram program_;
  const AttentionKernels& kernels_;
  const int64_t panel_;
  int64_t blocks_ = 0, group_blocks_ = 0, groups_ = 0;
  int64_t columns_ = 0, row_stride_ = 0, chunk_rows_ = 1;
  std::vector<Pack> packs_;  // The packs of the products, then the packs of the results.
  int64_t pack_elements_ = 0;
  std::vector<int64_t> sum_offsets_;  // One per result of kind COLUMN_PRODUCT.
  int64_t sum_elements_ = 0;
  int64_t widest_ = 0;
  int64_t tile_elements_ = 0, side_elements_ = 0, thread_elements_ = 0, shared_elements_ = 0;
};

// Computes blocks of rows of one entry of the batch, in the memory of one thread.
class BlockRunner {
 public:
  BlockRunner(const PreparedAttention& op, absl::Span<void* const> buffers, float* memory)
      : op_(op), program_(op.program_), kernels_(op.kernels_), buffers_(buffers), tiles_(memory) {
    rows_ = tiles_ + program_.tiles * op.tile_elements_;
    narrow_ = rows_ + program_.row_slots * op.chunk_rows_ * op.row_stride_;
    side_ = narrow_ + program_.narrow_slots * kRowAlignment;
    for (int64_t c = 0; c < std::ssize(program_.constants); ++c) {
      for (int64_t i = 0; i < kRowAlignment; ++i) {
        std::memcpy(narrow_ + c * kRowAlignment + i, &program_.constants[c], sizeof(float));
      }
    }
    for (int32_t i = 0; program_.has_column_index && i < op.row_stride_; ++i) std::memcpy(rows_ + i, &i, sizeof(i));
  }
  // The end of this runner's memory.
  float* end() const { return side_ + op_.side_elements_; }

  // Sets the entry of the batch, its packed operands and its sums over rows.
  void SetBatch(int64_t batch, const float* packs, float* sums) {
    index_ = tensor::MultiIndexAt(program_.batch, batch);
    index_.resize(program_.batch.size() + program_.rows.size(), 0);
    packs_ = packs;
    sums_ = sums;
  }

  void PackAll(float* packs) {
    for (const Pack& pack : op_.packs_) {
      const AttentionArray& array = program_.operands[pack.operand];
      const int64_t offset = Offset(array);
      if (pack.transposed) {
        PackTransposed(pack, array, offset, packs + pack.offset);
      } else {
        PackPanels(pack.width, program_.columns, packs + pack.offset, [&](int64_t c, absl::Span<float> to) {
          LoadFloats(array.type, buffers_[pack.operand], offset + c * array.strides[program_.ColumnDimension()],
                     array.strides[program_.FeatureDimension()], to);
        });
      }
    }
  }

  void Run(int64_t block) {
    first_ = block * program_.block_rows;
    count_ = std::min(program_.block_rows, program_.Rows() - first_);
    const int64_t some = program_.block_columns[block];
    if (!RunColumns(some)) RunColumns(program_.columns);
    for (const AttentionResult& result : program_.results) {
      if (result.kind == AttentionOp::Result::ROW_PRODUCT) StoreRowProduct(result);
      if (result.kind == AttentionOp::Result::COLUMN_PRODUCT) AddColumnProduct(result);
    }
  }

 private:
  int64_t Offset(const AttentionArray& array) const {
    int64_t offset = 0;
    for (size_t d = 0; d < index_.size(); ++d) offset += index_[d] * array.strides[d];
    return offset;
  }
  void SetRow(int64_t row) {
    const size_t batch = program_.batch.size();
    for (size_t d = program_.rows.size(); d-- > 1; row /= program_.rows[d]) index_[batch + d] = row % program_.rows[d];
    if (!program_.rows.empty()) index_[batch] = row;
  }
  void LeaveRow() { std::fill(index_.begin() + std::ssize(program_.batch), index_.end(), 0); }

  // Writes rows 0 .. count-1 of `width` elements into panels; load(row, to) reads one row.
  template <typename F>
  void PackPanels(int64_t width, int64_t count, float* to, const F& load) {
    const int64_t panel = op_.panel_, panels = op_.Panels(width);
    std::vector<float>& line = line_;
    line.assign(panels * panel, 0.0f);
    for (int64_t row = 0; row < count; ++row) {
      load(row, absl::MakeSpan(line.data(), width));
      for (int64_t p = 0; p < panels; ++p) {
        std::copy_n(line.data() + p * panel, panel, to + (p * count + row) * panel);
      }
    }
  }

  void PackTransposed(const Pack& pack, const AttentionArray& array, int64_t offset, float* to) {
    const int64_t panel = op_.panel_, panels = op_.Panels(program_.columns);
    line_.assign(pack.width, 0.0f);
    for (int64_t p = 0; p < panels; ++p, to += panel * pack.width) {
      for (int64_t i = 0; i < panel; ++i) {
        const int64_t column = p * panel + i;
        if (column >= program_.columns) std::fill(line_.begin(), line_.end(), 0.0f);
        if (column < program_.columns) {
          LoadFloats(array.type, buffers_[pack.operand], offset + column * array.strides[program_.ColumnDimension()],
                     array.strides[program_.FeatureDimension()], absl::MakeSpan(line_));
        }
        for (int64_t f = 0; f < pack.width; ++f) to[f * panel + i] = line_[f];
      }
    }
  }

  // Computes the block's scores and row operations for the first `columns` columns. Returns false if the other columns
  // are not masked and must be computed too.
  bool RunColumns(int64_t columns) {
    columns_ = columns;
    for (size_t p = 0; p < program_.products.size(); ++p) RunProduct(program_.products[p], op_.packs_[p]);
    bool complete = true;
    for (row_ = 0; complete && row_ < count_; row_ += op_.chunk_rows_) {
      chunk_ = std::min(op_.chunk_rows_, count_ - row_);
      for (const AttentionStep& step : program_.steps) complete = complete && RunStep(step);
      if (complete) StoreRowValues();
    }
    LeaveRow();
    return complete;
  }

  void StoreRowValues() {
    for (const AttentionResult& result : program_.results) {
      if (result.kind != AttentionOp::Result::ROW_VALUE) continue;
      const float* values = At(result.slot);
      for (int64_t r = 0; r < chunk_; ++r) {
        SetRow(first_ + row_ + r);
        StoreFloats(result.array.type, {values + r, 1}, Offset(result.array), 0, ResultBuffer(result));
      }
    }
  }

  void RunProduct(const AttentionProduct& product, const Pack& pack) {
    const AttentionArray& left = program_.operands[product.left];
    TileProduct tile;
    tile.a = Direct(left, buffers_[product.left]);
    tile.a_row = RowStride(left);
    if (tile.a == nullptr) {
      LoadRows(left, buffers_[product.left], product.depth, side_);
      tile.a = side_;
      tile.a_row = product.depth;
    }
    tile.a_depth = 1;
    tile.b = packs_ + pack.offset;
    tile.b_panel = op_.panel_ * product.depth;
    tile.b_row = op_.panel_;
    tile.c = Tile(product.slot);
    tile.c_row = op_.row_stride_;
    tile.m = count_;
    tile.n = RoundUp(columns_, kernels_.lanes);
    tile.k = product.depth;
    kernels_.multiply(tile);
  }

  int64_t RowStride(const AttentionArray& array) const {
    return program_.rows.empty() ? 0 : array.strides[program_.batch.size()];
  }
  // The rows of the block in the operand itself, or null if they are not f32 rows with one stride and contiguous
  // features.
  const float* Direct(const AttentionArray& array, const void* from) {
    const bool is_contiguous = array.strides[program_.FeatureDimension()] == 1;
    if (array.type != ElementType::kF32 || !is_contiguous || program_.rows.size() > 1) return nullptr;
    SetRow(first_);
    const float* rows = static_cast<const float*>(from) + Offset(array);
    LeaveRow();
    return rows;
  }

  void LoadRows(const AttentionArray& array, const void* from, int64_t width, float* to) {
    for (int64_t r = 0; r < count_; ++r) {
      SetRow(first_ + r);
      LoadFloats(array.type, from, Offset(array), array.strides[program_.FeatureDimension()],
                 absl::MakeSpan(to + r * width, width));
    }
    LeaveRow();
  }

  float* Tile(const AttentionSlot& slot) const { return tiles_ + slot.number * op_.tile_elements_; }
  // The current rows of a slot.
  float* At(const AttentionSlot& slot) const {
    if (slot.kind == Kind::kTile) return Tile(slot) + row_ * op_.row_stride_;
    if (slot.kind == Kind::kNarrow) return narrow_ + slot.number * kRowAlignment;
    return rows_ + slot.number * op_.chunk_rows_ * op_.row_stride_;
  }
  int64_t StrideOf(const AttentionSlot& slot) const {
    if (slot.kind == Kind::kNarrow) return 1;
    const bool same = program_.has_column_index && slot.kind == Kind::kRow && slot.number == 0;
    return same ? 0 : op_.row_stride_;
  }
  void* ResultBuffer(const AttentionResult& result) const {
    return buffers_[program_.operands.size() + (&result - program_.results.data())];
  }

  // Applies a step to the current rows.
  bool RunStep(const AttentionStep& step) {
    float* result = At(step.result);
    const int64_t stride = StrideOf(step.result);
    switch (step.kind) {
      case AttentionStep::Kind::kRead:
        Read(step, result, stride);
        break;
      case AttentionStep::Kind::kIndex:
        for (int64_t r = 0; r < chunk_; ++r) {
          SetRow(first_ + row_ + r);
          const int32_t index = index_[step.source];
          std::memcpy(result + r, &index, sizeof(index));
        }
        break;
      case AttentionStep::Kind::kMax:
      case AttentionStep::Kind::kSum: {
        const auto reduce = step.kind == AttentionStep::Kind::kMax ? kernels_.row_max : kernels_.row_sum;
        const float* from = At(step.inputs[0]);
        for (int64_t r = 0; r < chunk_; ++r) result[r] = reduce(from + r * StrideOf(step.inputs[0]), columns_);
        break;
      }
      case AttentionStep::Kind::kApply:
        ApplyStep(step);
        break;
    }
    if (step.rounded_to != ElementType::kF32) {
      const bool is_bf16 = step.rounded_to == ElementType::kBF16;
      const RowOpcode round = is_bf16 ? RowOpcode::kRoundToBf16 : RowOpcode::kRoundToF16;
      Apply({round, {{result, false, stride}, {}, {}}, result, stride, chunk_}, step.wide);
    }
    bool zero = true;
    if (step.check_zero && columns_ != program_.columns) {
      for (int64_t r = 0; r < chunk_; ++r) zero = zero && result[r * stride + columns_ - 1] == 0.0f;
    }
    return zero;
  }

  void Read(const AttentionStep& step, float* result, int64_t stride) {
    const AttentionArray& array = program_.operands[step.source];
    const size_t count = step.wide ? columns_ : 1;
    for (int64_t r = 0; r < chunk_; ++r) {
      SetRow(first_ + row_ + r);
      LoadFloats(array.type, buffers_[step.source], Offset(array), array.strides[program_.ColumnDimension()],
                 absl::MakeSpan(result + r * stride, count));
    }
  }

  void ApplyStep(const AttentionStep& step) {
    RowOperation operation{step.opcode, {}, At(step.result), StrideOf(step.result), chunk_};
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      operation.inputs[k] = {At(step.inputs[k]), step.inputs[k].kind == Kind::kNarrow, StrideOf(step.inputs[k])};
    }
    if (step.opcode != RowOpcode::kCopy || operation.inputs[0].at != operation.result) Apply(operation, step.wide);
  }

  // A value with one element for each row is treated as a single row.
  void Apply(RowOperation operation, bool wide) {
    if (wide) return kernels_.apply(operation, columns_);
    for (RowInput& input : operation.inputs) input.narrow = false;
    operation.rows = 1;
    kernels_.apply(operation, chunk_);
  }

  void StoreRowProduct(const AttentionResult& result) {
    const int64_t panel = op_.panel_, width = op_.Panels(result.width) * panel;
    const Pack& pack = op_.packs_[program_.products.size() + result.number];
    TileProduct tile;
    tile.a = Tile(result.slot);
    tile.a_row = op_.row_stride_;
    tile.a_depth = 1;
    tile.b = packs_ + pack.offset;
    tile.b_panel = program_.columns * panel;
    tile.b_row = panel;
    tile.c = side_;
    tile.c_row = width;
    tile.m = count_;
    tile.n = RoundUp(result.width, kernels_.lanes);
    tile.k = columns_;
    kernels_.multiply(tile);
    for (int64_t r = 0; r < count_; ++r) {
      SetRow(first_ + r);
      StoreFloats(result.array.type, absl::MakeConstSpan(side_ + r * width, result.width), Offset(result.array),
                  result.array.strides[program_.FeatureDimension()], ResultBuffer(result));
    }
    LeaveRow();
  }

  void AddColumnProduct(const AttentionResult& result) {
    const AttentionArray& array = program_.operands[result.operand];
    TileProduct tile;
    tile.a = Tile(result.slot);
    tile.a_row = 1;
    tile.a_depth = op_.row_stride_;
    tile.b = result.width % kernels_.lanes == 0 ? Direct(array, buffers_[result.operand]) : nullptr;
    tile.b_panel = op_.panel_;
    tile.b_row = RowStride(array);
    if (tile.b == nullptr) {
      PackPanels(result.width, count_, side_, [&](int64_t r, absl::Span<float> to) {
        SetRow(first_ + r);
        LoadFloats(array.type, buffers_[result.operand], Offset(array), array.strides[program_.FeatureDimension()], to);
      });
      LeaveRow();
      tile.b = side_;
      tile.b_panel = count_ * op_.panel_;
      tile.b_row = op_.panel_;
    }
    tile.c = sums_ + op_.sum_offsets_[result.number];
    tile.c_row = op_.Panels(result.width) * op_.panel_;
    tile.m = columns_;
    tile.n = RoundUp(result.width, kernels_.lanes);
    tile.k = count_;
    tile.add = true;
    kernels_.multiply(tile);
  }

  const PreparedAttention& op_;
  const AttentionProgram& program_;
  const AttentionKernels& kernels_;
  absl::Span<void* const> buffers_;
  float *tiles_, *rows_, *narrow_;
  float* side_;  // Temporary memory for the rows of an operand or for a product.
  const float* packs_ = nullptr;
  float* sums_ = nullptr;
  std::vector<int64_t> index_;  // The position in the dimensions of the batch and of the rows.
  std::vector<float> line_;
  int64_t first_ = 0, count_ = 0, columns_ = 0;
  int64_t row_ = 0, chunk_ = 0;  // The first row and the number of rows of the current chunk of the block.
};

class AttentionCall final : public LibraryCall {
 public:
  explicit AttentionCall(const PreparedAttention* op) : op_(*op) {}

  absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& team) override {
    float* shared = static_cast<float*>(scratch);
    float* threads = shared + op_.shared_elements_;
    const int64_t batches = op_.program_.Batches();
    float* sums = shared + batches * op_.pack_elements_;
    if (op_.groups_ > 1) {
      team.Run(batches, [&](int thread, int64_t begin, int64_t end) {
        BlockRunner runner(op_, buffers, threads + thread * op_.thread_elements_);
        for (int64_t b = begin; b < end; ++b) {
          runner.SetBatch(b, nullptr, nullptr);
          runner.PackAll(shared + b * op_.pack_elements_);
        }
        return 0;
      });
    }
    team.Run(batches * op_.groups_, [&](int thread, int64_t begin, int64_t end) {
      BlockRunner runner(op_, buffers, threads + thread * op_.thread_elements_);
      for (int64_t t = begin; t < end; ++t) RunTask(t, &runner, shared, sums, buffers);
      return 0;
    });
    if (op_.groups_ > 1 && op_.sum_elements_ > 0) {
      team.Run(batches, [&](int, int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) AddGroups(b, sums, buffers);
        return 0;
      });
    }
    return absl::OkStatus();
  }

 private:
  // Task t is group t % groups of entry t / groups of the batch.
  void RunTask(int64_t t, BlockRunner* runner, float* shared, float* sums, absl::Span<void* const> buffers) const {
    const int64_t batch = t / op_.groups_, group = t % op_.groups_;
    float* packs = op_.groups_ > 1 ? shared + batch * op_.pack_elements_ : runner->end();
    float* sum = op_.groups_ > 1 ? sums + t * op_.sum_elements_ : runner->end() + op_.pack_elements_;
    runner->SetBatch(batch, packs, sum);
    if (op_.groups_ == 1) runner->PackAll(packs);
    std::fill(sum, sum + op_.sum_elements_, 0.0f);
    const int64_t first = group * op_.group_blocks_, last = std::min(op_.blocks_, first + op_.group_blocks_);
    for (int64_t block = first; block < last; ++block) runner->Run(block);
    if (op_.groups_ == 1) StoreSums(batch, sum, buffers);
  }

  void AddGroups(int64_t batch, float* sums, absl::Span<void* const> buffers) const {
    float* total = sums + batch * op_.groups_ * op_.sum_elements_;
    for (int64_t g = 1; g < op_.groups_; ++g) {
      const float* more = total + g * op_.sum_elements_;
      for (int64_t i = 0; i < op_.sum_elements_; ++i) total[i] += more[i];
    }
    StoreSums(batch, total, buffers);
  }

  void StoreSums(int64_t batch, const float* sum, absl::Span<void* const> buffers) const {
    const AttentionProgram& program = op_.program_;
    const tensor::Dims index = tensor::MultiIndexAt(program.batch, batch);
    for (size_t r = 0; r < program.results.size(); ++r) {
      const AttentionResult& result = program.results[r];
      if (result.kind != AttentionOp::Result::COLUMN_PRODUCT) continue;
      int64_t offset = 0;
      for (const int64_t d : tensor::Indices(index)) offset += index[d] * result.array.strides[d];
      const float* from = sum + op_.sum_offsets_[result.number];
      const int64_t width = op_.Panels(result.width) * op_.panel_;
      for (int64_t c = 0; c < program.columns; ++c) {
        StoreFloats(result.array.type, absl::MakeConstSpan(from + c * width, result.width),
                    offset + c * result.array.strides[program.ColumnDimension()],
                    result.array.strides[program.FeatureDimension()], buffers[program.operands.size() + r]);
      }
    }
  }

  const PreparedAttention& op_;
};

absl::StatusOr<std::unique_ptr<LibraryCall>> PreparedAttention::MakeCall(int) const {
  return std::make_unique<AttentionCall>(this);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareAttention(const AttentionOp& op) {
  XLAD_ASSIGN_OR_RETURN(AttentionProgram program, ReadAttentionProgram(op));
  return std::make_unique<PreparedAttention>(std::move(program));
}

}  // namespace xlad::runtime
