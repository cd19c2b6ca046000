// The outer loop of a kernel: blocks of arrays are copied into VMEM while the blocks before them are computed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/codegen/tpu/llo_builder.h"

namespace xlad::compiler {

// The rows or columns of the block of a step: `block` of them, beginning at block * (the index along `axis`), without
// those beyond `total`. Without an axis, all `total`, which is at most `block`.
struct BlockExtent {
  int axis = -1;
  int64_t block = 1, total = 1;
};

// An array of which each step uses a block. The first element of the block is at `base` plus, for each axis of the
// grid, the index along it times `steps[axis]`; its rows are `row_stride` elements apart and dense.
struct TileStream {
  int buffer = 0;
  std::vector<int64_t> steps;
  int64_t base = 0;
  int64_t row_stride = 1;
  BlockExtent rows, columns;

  int64_t tile_rows() const;
  int64_t tile_columns() const;
  int64_t tiles() const { return tile_rows() * tile_columns(); }
};

// Steps are numbered row-major over `counts`. The last `inner` axes are those of a reduction: all their steps work on
// one block of the outputs, which is copied out after the last of them.
struct TileGrid {
  std::vector<int64_t> counts;
  int inner = 0;
};

// A step inside of the loop. The numbers are scalar registers.
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
  // At most 24 streams. The builder must outlive the object.
  TilePipeline(LloBuilder* builder, TileGrid grid, std::vector<TileStream> inputs, std::vector<TileStream> outputs);

  // Writes the loop; `compute` writes what a step does, and must write all tiles of the outputs that are copied out.
  // Inputs have two buffers in VMEM, or four if they are small: the copies of the next steps run while this one is
  // computed. So have outputs.
  void Run(const std::function<void(const TileStep& step)>& compute);

 private:
  struct Placed {
    TileStream stream;
    int64_t first_tile = 0;
    int semaphore = 0;
    bool is_constant = false;  // The same block in all steps, copied once.
  };
  Placed Place(const TileStream& stream, bool is_input);
  void Start(LloOp op, const Placed& placed, int step, int slot, int predicate);
  int Extent(const BlockExtent& extent, int step);
  int Slot(const Placed& placed, int number);
  int64_t Steps() const;
  int64_t InnerSteps() const;

  LloBuilder& builder_;
  const TileGrid grid_;
  int64_t depth_ = 2;  // Buffers of each stream; a power of two.
  std::vector<Placed> inputs_, outputs_;
};

}  // namespace xlad::compiler
