#include "runtime/devices/cpu/small_dot.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/attention_kernels.h"

namespace xlad::runtime {
namespace {

// The right operand has at most kMaxInPlace elements if both operands are matrices, otherwise at most kMaxCopied.
// Row-major matrices are read in place; the rows of larger matrices are too far apart for the first-level cache.
constexpr int64_t kMaxInPlace = 1 << 16, kMaxCopied = 1 << 18;
constexpr int64_t kMaxDepth = 1024;  // The largest number of terms of a sum.
// The largest number of rows of a tile that are copied and multiplied at a time. It is a multiple of the number of rows
// that the multiplication of attention_kernels.h computes at a time.
constexpr int64_t kMaxRows = 240;
// A product has about one tile for each kSmallTileFlops floating-point operations, or for each kSmallTileBytes bytes of
// operands and results if that makes more tiles. Either takes about 10 microseconds.
constexpr double kSmallTileFlops = 1e6, kSmallTileBytes = 2.5e5;
// The largest number of tiles of a product, and of a product that copies operands. If the batch and also m or n are
// split, the number of tiles is rounded up to a multiple of the number of parts of the batch.
constexpr int64_t kMaxSmallTiles = 32, kMaxCopyingTiles = 8;
// The fewest rows and columns of a tile if m or n is split. An element that a tile copies is used at least kMinReuse
// times.
constexpr int64_t kMinRows = 24, kMinColumns = 32, kMinReuse = 128;
// If n is split, the columns of every tile but the last are a multiple of this, which is a multiple of the width of
// every panel.
constexpr int64_t kPanels = 32;
// The maximum number of rows, and of positions in the batch. Tables have an offset for each of them.
constexpr int64_t kMaxLoop = 1 << 20;
// Transposed right operands are copied. This saves time if the product has at least this many rows, and the columns of
// the right operand have at most this many elements.
constexpr int64_t kMinTransposedRows = 64, kMaxTransposedDepth = 512;
// A multiple of the number of floats in a vector on every CPU. Right operands that are matrices must have a multiple of
// this number of columns. Transposed right operands must also have a multiple of this number of rows.
constexpr int64_t kColumns = 16;
// These loops compute batches of at least kMinTinyBatch products whose dimensions are at most kMaxTiny, because oneDNN
// takes longer for each product, although these loops copy the right operand and the result.
constexpr int64_t kMinTinyBatch = 16, kMaxTiny = 16;

// The offsets of the positions of nested loops in one array, in elements.
std::vector<int64_t> Offsets(const std::vector<DotLoop>& loops, int64_t DotLoop::* stride) {
  std::vector<int64_t> offsets = {0};
  for (const DotLoop& loop : loops) {
    std::vector<int64_t> inner;
    inner.reserve(offsets.size() * loop.size);
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < loop.size; ++i) inner.push_back(offset + i * loop.*stride);
    }
    offsets = std::move(inner);
  }
  return offsets;
}

int64_t InnerSize(const std::vector<DotLoop>& loops) { return loops.empty() ? 1 : loops.back().size; }
int64_t InnerStride(const std::vector<DotLoop>& loops, int64_t DotLoop::* stride) {
  return loops.empty() ? 0 : loops.back().*stride;
}

// Whether all loops together are one loop with the stride of the innermost loop.
bool IsOneLoop(const std::vector<DotLoop>& loops, int64_t DotLoop::* stride) {
  for (size_t i = 1; i < loops.size(); ++i) {
    if (loops[i - 1].*stride != loops[i].*stride * loops[i].size) return false;
  }
  return true;
}

// Whether rhs consists of panels of kPanels columns, in each of which the rows are adjacent. The compiler gives this
// form to operands of loops (compiler/passes/pack_loop_operands.cc).
bool HasPanels(const DotShape& shape) {
  return shape.n.size() == 2 && shape.n[1].size == kPanels && shape.n[1].rhs == 1 && shape.k.size() == 1 &&
         shape.k[0].rhs == kPanels;
}

// The first batch, row and column of a part of the product that one thread computes.
struct SmallTile {
  int64_t batch, row, column;
};

class SmallDot final : public PreparedLibraryOp {
 public:
  explicit SmallDot(const DotShape& shape);

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes(int threads) const override { return threads * (lhs_bytes_ + rhs_bytes_ + result_bytes_); }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override {
    return absl::StrCat("xlad", tiles_.size() > 1 ? absl::StrCat(", ", tiles_.size(), " tiles") : "",
                        lhs_bytes_ > 0 ? ", lhs packed" : "", rhs_bytes_ > 0 ? ", rhs packed" : "");
  }

  void Compute(const SmallTile& tile, const float* lhs, const float* rhs, float* result, char* scratch) const;
  const std::vector<SmallTile>& tiles() const { return tiles_; }

 private:
  DotGrid ChooseTiles(bool copies_lhs, bool copies_rhs) const;
  void Multiply(TileProduct product) const;
  void MultiplyRows(const SmallTile& at, TileProduct product, const float* lhs, float* result, char* scratch) const;
  void PackLhs(const float* lhs, int64_t row, int64_t rows, float* to) const;
  void PackRhs(const float* rhs, int64_t column, int64_t columns, float* to) const;
  void PackPanel(const float* rhs, const int64_t* columns, int64_t count, float* to) const;

  const AttentionKernels& kernels_ = AttentionKernelsOfCpu();
  DotShape shape_;
  int64_t m_, n_, k_;
  DotGrid grid_;
  std::vector<SmallTile> tiles_;
  std::vector<int64_t> batch_lhs_, batch_rhs_, m_lhs_, k_lhs_, k_rhs_, n_rhs_;
  bool lhs_by_columns_ = false;  // Whether a copy of lhs is column-major.
  int64_t panel_stride_ = 0;     // If rhs has panels and is used in place: the distance from one to the next.
  int64_t lhs_bytes_ = 0, rhs_bytes_ = 0, result_bytes_ = 0;  // Per thread; 0 if the array is used in place.
};

SmallDot::SmallDot(const DotShape& shape)
    : shape_(shape),
      m_(shape.Elements(shape.m)),
      n_(shape.Elements(shape.n)),
      k_(shape.Elements(shape.k)),
      batch_lhs_(Offsets(shape.batch, &DotLoop::lhs)),
      batch_rhs_(Offsets(shape.batch, &DotLoop::rhs)),
      m_lhs_(Offsets(shape.m, &DotLoop::lhs)),
      k_lhs_(Offsets(shape.k, &DotLoop::lhs)),
      k_rhs_(Offsets(shape.k, &DotLoop::rhs)),
      n_rhs_(Offsets(shape.n, &DotLoop::rhs)) {
  lhs_by_columns_ = InnerStride(shape.m, &DotLoop::lhs) == 1 && InnerStride(shape.k, &DotLoop::lhs) != 1;
  const bool lhs_in_place = IsOneLoop(shape.m, &DotLoop::lhs) && IsOneLoop(shape.k, &DotLoop::lhs);
  const bool whole = n_ % kernels_.lanes == 0;
  if (HasPanels(shape)) panel_stride_ = shape.n[0].rhs;
  const bool is_matrix = InnerStride(shape.n, &DotLoop::rhs) == 1 && IsOneLoop(shape.n, &DotLoop::rhs) &&
                         IsOneLoop(shape.k, &DotLoop::rhs);
  const bool rhs_in_place = whole && (is_matrix || HasPanels(shape));
  grid_ = ChooseTiles(!lhs_in_place, !rhs_in_place);
  for (int64_t b = 0; b < std::ssize(batch_lhs_); b += grid_.batch) {
    for (int64_t i = 0; i < m_; i += grid_.m) {
      for (int64_t j = 0; j < n_; j += grid_.n) tiles_.push_back({b, i, j});
    }
  }
  const int64_t rows = std::min(grid_.m, kMaxRows);
  const auto bytes = [](int64_t elements) { return RoundUp(elements * 4, XLAD_BUFFER_ALIGNMENT); };
  if (!lhs_in_place) lhs_bytes_ = bytes(rows * k_);
  if (!rhs_in_place) rhs_bytes_ = bytes(k_ * RoundUp(grid_.n, kernels_.panel));
  if (!whole) result_bytes_ = bytes(rows * RoundUp(grid_.n, kernels_.lanes));
}

// Splits the outermost batch loop first, which costs nothing. Then splits m and n into as many of the wanted tiles as
// possible. Each tile copies its own rows and columns of the operands that are not used in place. Among the splits with
// the most tiles, the one whose copies have the fewest elements is chosen. The order of sums does not depend on the
// tiles.
DotGrid SmallDot::ChooseTiles(bool copies_lhs, bool copies_rhs) const {
  const double batches = static_cast<double>(std::ssize(batch_lhs_));
  const double bytes = 4 * batches * static_cast<double>(m_ * k_ + k_ * n_ + m_ * n_);
  const double flops = 2 * batches * static_cast<double>(m_ * n_) * static_cast<double>(k_);
  const double worth = std::max(flops / kSmallTileFlops, bytes / kSmallTileBytes);
  const int64_t most = copies_lhs || copies_rhs ? kMaxCopyingTiles : kMaxSmallTiles;
  const int64_t wanted = std::clamp<int64_t>(std::min(worth, 1e6), 1, most);
  const int64_t outer = shape_.batch.empty() ? 1 : shape_.batch[0].size;
  const int64_t b = std::min(outer, wanted), rest = CeilDiv(wanted, b);
  const int64_t most_rows = std::max<int64_t>(1, m_ / (copies_rhs ? kMinReuse : kMinRows));
  const int64_t most_columns = std::max<int64_t>(1, n_ / (copies_lhs ? kMinReuse : kMinColumns));
  int64_t rows = 1, columns = 1, most_parts = 0, fewest_copied = 0;
  for (int64_t c = std::min(rest, most_columns); c >= 1; --c) {
    const int64_t r = std::min(CeilDiv(rest, c), most_rows), parts = std::min(rest, r * c);
    const int64_t copied = (copies_lhs ? m_ * c : 0) + (copies_rhs ? n_ * r : 0);
    if (parts < most_parts || (parts == most_parts && copied >= fewest_copied)) continue;
    rows = r, columns = c, most_parts = parts, fewest_copied = copied;
  }
  const auto part = [](int64_t size, int64_t parts, int64_t multiple) {
    return std::min(size, RoundUp(CeilDiv(size, parts), multiple));
  };
  const int64_t inner = std::ssize(batch_lhs_) / outer;
  return {CeilDiv(outer, b) * inner, part(m_, rows, 4), part(n_, columns, kPanels)};
}

// Copies rows of lhs to a row-major matrix, or to a column-major one if lhs_by_columns_.
void SmallDot::PackLhs(const float* lhs, int64_t row, int64_t rows, float* to) const {
  const int64_t* const row_offsets = m_lhs_.data() + row;
  if (lhs_by_columns_) {
    for (int64_t l = 0; l < k_; ++l, to += rows) {
      const float* const from = lhs + k_lhs_[l];
      for (int64_t i = 0; i < rows; ++i) to[i] = from[row_offsets[i]];
    }
    return;
  }
  const int64_t run = InnerSize(shape_.k), step = InnerStride(shape_.k, &DotLoop::lhs);
  for (int64_t i = 0; i < rows; ++i, to += k_) {
    for (int64_t l = 0; l < k_; l += run) {
      const float* const from = lhs + row_offsets[i] + k_lhs_[l];
      if (step == 1) {
        std::memcpy(to + l, from, run * 4);
      } else {
        for (int64_t r = 0; r < run; ++r) to[l + r] = from[r * step];
      }
    }
  }
}

// Copies `count` columns of rhs, at most a panel, to rows of the length of a panel. The rest of the rows is zero.
void SmallDot::PackPanel(const float* rhs, const int64_t* columns, int64_t count, float* to) const {
  const int64_t panel = kernels_.panel;
  if (count < panel) std::memset(to, 0, k_ * panel * 4);
  if (columns[count - 1] - columns[0] == count - 1 && InnerStride(shape_.n, &DotLoop::rhs) == 1) {
    for (int64_t l = 0; l < k_; ++l) {
      std::memcpy(to + l * panel, rhs + columns[0] + k_rhs_[l], count * 4);
    }
    return;
  }
  // Blocks of rows that fit into the first-level cache together with the columns that are read.
  constexpr int64_t kRows = 64;
  const int64_t lanes = kernels_.lanes;
  const bool by_squares = InnerStride(shape_.k, &DotLoop::rhs) == 1 && InnerSize(shape_.k) % lanes == 0;
  for (int64_t first = 0; first < k_; first += kRows) {
    const int64_t end = std::min(k_, first + kRows);
    int64_t j = 0;
    for (; by_squares && j + lanes <= count; j += lanes) {
      for (int64_t l = first; l < end; l += lanes) {
        kernels_.transpose(rhs + k_rhs_[l], columns + j, to + l * panel + j, panel);
      }
    }
    for (; j < count; ++j) {
      for (int64_t l = first; l < end; ++l) to[l * panel + j] = rhs[columns[j] + k_rhs_[l]];
    }
  }
}

void SmallDot::PackRhs(const float* rhs, int64_t column, int64_t columns, float* to) const {
  for (int64_t j = 0; j < columns; j += kernels_.panel, to += k_ * kernels_.panel) {
    PackPanel(rhs, n_rhs_.data() + column + j, std::min(kernels_.panel, columns - j), to);
  }
}

// If rhs has panels, multiplies with one of them at a time. A panel has kPanels columns, a multiple of the width of the
// panels that the kernel reads.
void SmallDot::Multiply(TileProduct product) const {
  if (panel_stride_ == 0) return kernels_.multiply(product);
  for (int64_t rest = product.n; rest > 0; rest -= kPanels) {
    product.n = kPanels;
    kernels_.multiply(product);
    product.b += panel_stride_;
    product.c += kPanels;
  }
}

// Computes product.m rows of one batch. In `product`, the caller has set the right operand, but not the left operand
// and the result.
void SmallDot::MultiplyRows(const SmallTile& at, TileProduct product, const float* lhs, float* result,
                            char* scratch) const {
  const float* const left = lhs + batch_lhs_[at.batch];
  if (lhs_bytes_ > 0) {
    float* const copy = reinterpret_cast<float*>(scratch);
    PackLhs(left, at.row, product.m, copy);
    product.a = copy;
    product.a_row = lhs_by_columns_ ? 1 : k_;
    product.a_depth = lhs_by_columns_ ? product.m : 1;
  } else {
    product.a = left + m_lhs_[at.row];
    product.a_row = InnerStride(shape_.m, &DotLoop::lhs);
    product.a_depth = InnerStride(shape_.k, &DotLoop::lhs);
  }
  float* const to = result + (at.batch * m_ + at.row) * n_ + at.column;
  product.c = result_bytes_ > 0 ? reinterpret_cast<float*>(scratch + lhs_bytes_ + rhs_bytes_) : to;
  product.c_row = result_bytes_ > 0 ? product.n : n_;
  Multiply(product);
  if (result_bytes_ == 0) return;
  const int64_t columns = std::min(grid_.n, n_ - at.column);
  for (int64_t i = 0; i < product.m; ++i) {
    std::memcpy(to + i * n_, product.c + i * product.c_row, columns * 4);
  }
}

void SmallDot::Compute(const SmallTile& tile, const float* lhs, const float* rhs, float* result, char* scratch) const {
  float* const rhs_copy = reinterpret_cast<float*>(scratch + lhs_bytes_);
  const int64_t batches = std::min(grid_.batch, std::ssize(batch_lhs_) - tile.batch);
  const int64_t rows = std::min(grid_.m, m_ - tile.row), columns = std::min(grid_.n, n_ - tile.column);
  TileProduct product;
  product.n = RoundUp(columns, kernels_.lanes);
  product.k = k_;
  for (int64_t b = tile.batch; b < tile.batch + batches; ++b) {
    if (rhs_bytes_ > 0) {
      PackRhs(rhs + batch_rhs_[b], tile.column, columns, rhs_copy);
      product.b = rhs_copy;
      product.b_row = kernels_.panel;
      product.b_panel = k_ * kernels_.panel;
    } else {
      product.b = rhs + batch_rhs_[b] + n_rhs_[tile.column];
      product.b_row = InnerStride(shape_.k, &DotLoop::rhs);
      product.b_panel = kernels_.panel;
    }
    for (int64_t i = 0; i < rows; i += kMaxRows) {
      product.m = std::min(kMaxRows, rows - i);
      MultiplyRows({b, tile.row + i, tile.column}, product, lhs, result, scratch);
    }
  }
}

class SmallDotCall final : public LibraryCall {
 public:
  explicit SmallDotCall(const SmallDot* dot) : dot_(*dot) {}

  absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& team) override {
    const int64_t bytes = dot_.scratch_bytes(1);
    team.Run(std::ssize(dot_.tiles()), [&](int thread, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        dot_.Compute(dot_.tiles()[t], static_cast<const float*>(buffers[0]), static_cast<const float*>(buffers[1]),
                     static_cast<float*>(buffers[2]), static_cast<char*>(scratch) + thread * bytes);
      }
      return 0;
    });
    return absl::OkStatus();
  }

 private:
  const SmallDot& dot_;
};

absl::StatusOr<std::unique_ptr<LibraryCall>> SmallDot::MakeCall(int) const {
  return std::make_unique<SmallDotCall>(this);
}

}  // namespace

bool PrefersSmallDot(const DotShape& shape) {
  const int64_t batches = shape.Elements(shape.batch), m = shape.Elements(shape.m), n = shape.Elements(shape.n);
  const int64_t k = shape.Elements(shape.k);
  if (batches * m * n * k == 0 || std::max(batches, m) > kMaxLoop) return false;
  if (HasPanels(shape)) return true;
  if (k > kMaxDepth) return false;
  if (!shape.IsMatrix()) return k * n <= kMaxCopied;
  if (batches >= kMinTinyBatch && std::max({m, n, k}) <= kMaxTiny) return true;
  if (k * n > kMaxInPlace || n % kColumns != 0) return false;
  if (InnerStride(shape.n, &DotLoop::rhs) == 1) return true;
  return m >= kMinTransposedRows && k <= kMaxTransposedDepth && k % kColumns == 0;
}

std::unique_ptr<PreparedLibraryOp> MakeSmallDot(const DotShape& shape) { return std::make_unique<SmallDot>(shape); }

}  // namespace xlad::runtime
