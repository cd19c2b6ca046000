// The outer loop of a kernel: blocks of arrays are copied into VMEM while the previous blocks are computed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/codegen/tpu/llo_builder.h"

namespace xlad::compiler {

// The smallest number of buffers of a stream whose block changes: one block is copied while another one is computed.
inline constexpr int64_t kStreamBuffers = 2;

// The rows or columns of the block of a step. They begin at block * (the index along `axis`). There are `block` of
// them, or fewer in the last block, which ends at `total`. If `axis` is -1, the block has all `total` rows or columns,
// and `total` is at most `block`.
struct BlockExtent {
  int axis = -1;
  int64_t block = 1, total = 1;
};

// An array of elements of `type` of which each step uses a block. The first element of the block is at `base` plus the
// sum of (index along an axis of the grid) * `steps[axis]`. The block's rows are dense, and the first elements of
// neighboring rows are `row_stride` elements apart.
struct TileStream {
  int buffer = 0;
  std::vector<int64_t> steps;
  int64_t base = 0;
  int64_t row_stride = 1;
  BlockExtent rows, columns;
  machine::LloType type = machine::LloType::kF32;

  // The rows of the block in units of 8, and its rows of tiles, which have more rows if elements are packed.
  int64_t tile_rows() const;
  int64_t packed_rows() const;
  int64_t tile_columns() const;
  int64_t tiles() const { return packed_rows() * tile_columns(); }
};

// Steps are numbered row-major over `counts`. The last `inner` axes are those of a reduction. All steps along these
// axes update the same block of the outputs, and it is copied out after the last of them.
struct TileGrid {
  std::vector<int64_t> counts;
  int inner = 0;
};

// A step in the loop. All public members are, or return, numbers of scalar registers. The registers hold the values.
class TileStep {
 public:
  std::vector<int> inputs, outputs;  // The first tile in VMEM of each stream's block.

  // The index along an axis.
  int Index(int axis) const;
  // 1 in the first step of each block of the outputs, otherwise 0.
  int IsFirst() const;

 private:
  friend class TilePipeline;
  LloBuilder* builder_ = nullptr;
  const TileGrid* grid_ = nullptr;
  int step_ = 0;
};

class TilePipeline {
 public:
  // There may be at most 24 streams. The builder must outlive the object.
  TilePipeline(LloBuilder* builder, TileGrid grid, std::vector<TileStream> inputs, std::vector<TileStream> outputs);

  // Writes the loop. `compute` writes the code of a step, which must set all tiles of the outputs that are copied out.
  // Inputs and outputs have two buffers in VMEM, so that blocks of other steps are copied while a step is computed.
  // There are four buffers if all blocks together have at most 128 tiles and four of each fit into
  // LloBuilder::stream_tiles(). An input has only one buffer if all steps use the same block of it.
  void Run(const std::function<void(const TileStep& step)>& compute);

 private:
  struct Placed {
    TileStream stream;
    int64_t first_tile = 0;
    int semaphore = 0;
    bool is_constant = false;  // Whether all steps use the same block, which is copied once.
  };
  Placed Place(const TileStream& stream, bool is_input);
  void Start(LloOp op, const Placed& placed, int step, int slot, int predicate);
  int Extent(const BlockExtent& extent, int step);
  int Slot(const Placed& placed, int number);
  int64_t Steps() const;
  int64_t InnerSteps() const;

  LloBuilder& builder_;
  const TileGrid grid_;
  int64_t depth_ = kStreamBuffers;  // The number of buffers of each stream that is not constant, a power of two.
  std::vector<Placed> inputs_, outputs_;
};

}  // namespace xlad::compiler
