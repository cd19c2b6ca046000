#include "compiler/codegen/tpu/tile_pipeline.h"

#include <algorithm>

#include "base/rounding.h"
#include "base/status.h"

namespace xlad::compiler {
namespace {

// If the blocks of all streams together have at most this many tiles, each stream has four buffers, provided that they
// fit into LloBuilder::stream_tiles(). Such small blocks take less time to transfer than the latency of a copy, so
// several copies must be in flight.
constexpr int64_t kSmallTiles = 128;

// The number of consecutive steps with the same index along an axis.
int64_t StrideOf(const TileGrid& grid, int axis) {
  int64_t stride = 1;
  for (int a = axis + 1; a < std::ssize(grid.counts); ++a) stride *= grid.counts[a];
  return stride;
}

int IndexOf(LloBuilder* builder, const TileGrid& grid, int step, int axis) {
  const int index = builder->NewScalar();
  builder->Scalar(LloOp::kSDivI, index, step, StrideOf(grid, axis));
  if (axis > 0) builder->Scalar(LloOp::kSRemI, index, index, grid.counts[axis]);
  return index;
}

int64_t InnerStepsOf(const TileGrid& grid) {
  int64_t steps = 1;
  for (int i = 0; i < grid.inner; ++i) steps *= grid.counts[grid.counts.size() - 1 - i];
  return steps;
}

}  // namespace

int64_t TileStream::tile_rows() const { return CeilDiv(rows.block, machine::kSublanes); }
int64_t TileStream::packed_rows() const {
  return CeilDiv(rows.block, int64_t{machine::kSublanes} * machine::PackingOf(type));
}
int64_t TileStream::tile_columns() const { return CeilDiv(columns.block, machine::kLanes); }

int TileStep::Index(int axis) const { return IndexOf(builder_, *grid_, step_, axis); }

int TileStep::IsFirst() const {
  const int inner = builder_->NewScalar();
  builder_->Scalar(LloOp::kSRemI, inner, step_, InnerStepsOf(*grid_));
  builder_->Scalar(LloOp::kSLtI, inner, inner, 1);
  return inner;
}

TilePipeline::TilePipeline(LloBuilder* builder, TileGrid grid, std::vector<TileStream> inputs,
                           std::vector<TileStream> outputs)
    : builder_(*builder), grid_(std::move(grid)) {
  XLAD_CHECK(inputs.size() + outputs.size() <= 24);
  int64_t tiles = 0;
  for (const TileStream& stream : inputs) tiles += stream.tiles();
  for (const TileStream& stream : outputs) tiles += stream.tiles();
  if (tiles <= kSmallTiles && 4 * tiles <= builder_.stream_tiles()) depth_ = 4;
  for (const TileStream& stream : inputs) inputs_.push_back(Place(stream, true));
  for (const TileStream& stream : outputs) outputs_.push_back(Place(stream, false));
  for (int i = 0; i < std::ssize(inputs_); ++i) inputs_[i].semaphore = i;
  for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].semaphore = static_cast<int>(inputs_.size() + i);
}

TilePipeline::Placed TilePipeline::Place(const TileStream& stream, bool is_input) {
  Placed placed{stream};
  const bool stays = std::all_of(stream.steps.begin(), stream.steps.end(), [](int64_t step) { return step == 0; });
  placed.is_constant = is_input && stays && stream.rows.axis < 0 && stream.columns.axis < 0;
  placed.first_tile = builder_.NewTiles(stream.tiles() * (placed.is_constant ? 1 : depth_));
  return placed;
}

int64_t TilePipeline::Steps() const {
  int64_t steps = 1;
  for (const int64_t count : grid_.counts) steps *= count;
  return steps;
}

int64_t TilePipeline::InnerSteps() const { return InnerStepsOf(grid_); }

// Returns the register with the number of rows or columns of a step's block.
int TilePipeline::Extent(const BlockExtent& extent, int step) {
  if (extent.axis < 0 || grid_.counts[extent.axis] == 1) {
    const int constant = builder_.NewScalar();
    builder_.Scalar(LloOp::kSMov, constant, 0, std::min(extent.block, extent.total));
    return constant;
  }
  const int left = IndexOf(&builder_, grid_, step, extent.axis);
  builder_.Scalar(LloOp::kSMulI, left, left, extent.block);
  builder_.Scalar(LloOp::kSRSubI, left, left, extent.total);
  builder_.Scalar(LloOp::kSMinI, left, left, extent.block);
  return left;
}

// Returns the register with the first tile of buffer `number` modulo the number of buffers.
int TilePipeline::Slot(const Placed& placed, int number) {
  const int tile = builder_.NewScalar();
  if (placed.is_constant) {
    builder_.Scalar(LloOp::kSMov, tile, 0, placed.first_tile);
    return tile;
  }
  builder_.Scalar(LloOp::kSAndI, tile, number, depth_ - 1);
  builder_.Scalar(LloOp::kSMulI, tile, tile, placed.stream.tiles());
  builder_.Scalar(LloOp::kSAddI, tile, tile, placed.first_tile);
  return tile;
}

// Starts the copy of the block of a step. `slot` is the register of its first tile.
void TilePipeline::Start(LloOp op, const Placed& placed, int step, int slot, int predicate) {
  const ScalarScope scope(&builder_);
  const TileStream& stream = placed.stream;
  LloBuilder::Copy copy;
  copy.tile = slot;
  copy.element = builder_.NewScalar();
  builder_.Scalar(LloOp::kSMov, copy.element, 0, stream.base);
  copy.rows = Extent(stream.rows, step);
  copy.columns = Extent(stream.columns, step);
  for (int axis = 0; axis < std::ssize(stream.steps); ++axis) {
    if (stream.steps[axis] == 0 || grid_.counts[axis] == 1) continue;
    const ScalarScope inner(&builder_);
    const int offset = IndexOf(&builder_, grid_, step, axis);
    builder_.Scalar(LloOp::kSMulI, offset, offset, stream.steps[axis]);
    builder_.ScalarSum(copy.element, copy.element, offset);
  }
  copy.predicate = predicate;
  copy.buffer = stream.buffer;
  copy.stride = stream.row_stride;
  copy.tiles = stream.tile_columns();
  copy.semaphore = placed.semaphore;
  builder_.Start(op, copy);
}

void TilePipeline::Run(const std::function<void(const TileStep&)>& compute) {
  const int64_t steps = Steps(), inner_steps = InnerSteps();
  for (int64_t first = 0; first < std::min<int64_t>(depth_ - 1, steps); ++first) {
    for (const Placed& input : inputs_) {
      if (input.is_constant && first > 0) continue;
      const ScalarScope scope(&builder_);
      const int step = builder_.NewScalar();
      builder_.Scalar(LloOp::kSMov, step, 0, first);
      Start(LloOp::kDmaIn, input, step, Slot(input, step), LloBuilder::one());
      if (input.is_constant) builder_.Wait(input.semaphore);
    }
  }
  const ScalarScope scope(&builder_);
  const int step = builder_.NewScalar();
  builder_.BeginLoop(step, steps);
  {
    const ScalarScope next_scope(&builder_);
    const int next = builder_.NewScalar(), has_next = builder_.NewScalar();
    builder_.Scalar(LloOp::kSAddI, next, step, depth_ - 1);
    builder_.Scalar(LloOp::kSLtI, has_next, next, steps);
    for (const Placed& input : inputs_) {
      const ScalarScope one_scope(&builder_);
      if (!input.is_constant) Start(LloOp::kDmaIn, input, next, Slot(input, next), has_next);
    }
  }
  TileStep at;
  at.builder_ = &builder_;
  at.grid_ = &grid_;
  at.step_ = step;
  for (const Placed& input : inputs_) {
    if (!input.is_constant) builder_.Wait(input.semaphore);
    at.inputs.push_back(Slot(input, step));
  }
  {
    // The block that was in this buffer before must have been copied out.
    const int block = builder_.NewScalar(), is_full = builder_.NewScalar();
    builder_.Scalar(LloOp::kSDivI, block, step, inner_steps);
    for (const Placed& output : outputs_) at.outputs.push_back(Slot(output, block));
    const ScalarScope wait_scope(&builder_);
    const int is_first = at.IsFirst();
    builder_.Scalar(LloOp::kSGeI, is_full, block, depth_);
    builder_.ScalarSum(is_full, is_full, is_first);
    builder_.Scalar(LloOp::kSGeI, is_full, is_full, 2);
    for (const Placed& output : outputs_) builder_.Wait(output.semaphore, is_full);
  }
  compute(at);
  {
    const ScalarScope out_scope(&builder_);
    const int is_last = builder_.NewScalar();
    builder_.Scalar(LloOp::kSRemI, is_last, step, inner_steps);
    builder_.Scalar(LloOp::kSGeI, is_last, is_last, inner_steps - 1);
    for (size_t i = 0; i < outputs_.size(); ++i) Start(LloOp::kDmaOut, outputs_[i], step, at.outputs[i], is_last);
  }
  builder_.EndLoop();
  for (int64_t left = 0; left < std::min<int64_t>(depth_, steps / inner_steps); ++left) {
    for (const Placed& output : outputs_) builder_.Wait(output.semaphore);
  }
}

}  // namespace xlad::compiler
