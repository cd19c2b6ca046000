// The division of a kernel into tiles, which several threads compute concurrently (base/kernel_abi.h).
//
// A tile is a range of the row-major positions of the kernel's outputs. The positions are divided into spans of equal
// size, and each span into tiles of `width` positions. The last tile of a span may be shorter. For example, a sum of
// f32[100,3,500] over its first dimension, with outputs f32[3,500]:
//
//   positions 1500, span 500, width 128: tiles 0-127, 128-255, 256-383, 384-499, 500-627, ...
//
// The division depends only on the kernel, so that results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>

#include "base/rounding.h"
#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

struct Tiling {
  int64_t positions = 1;
  int64_t span = 1;   // Divides `positions`.
  int64_t width = 1;  // At most `span`.
  int64_t row = 1;    // Divides `span` and `width`: every tile consists of whole rows of this many positions.

  int64_t tiles() const { return positions / span * CeilDiv(span, width); }
};

// These functions choose about `tiles` tiles. TileLinear divides positions that one loop visits. TileRows divides the
// rows (indices of leading dimensions) of `dims`. TileWholeRows does the same, but leaves the last dimension whole.
// TileColumns divides an array of sizes `dims` into strips of its rows, for column reductions and long rows. A strip
// has at most `max_width` positions. TileColumns chooses whole rows instead if there are many rows or if rows are
// short. Only in this case, `row` is the size of the innermost dimension whose size is not 1. Otherwise it is 1.
Tiling TileLinear(int64_t positions, int64_t tiles);
Tiling TileRows(const tensor::Dims& dims, int64_t tiles);
Tiling TileWholeRows(tensor::Dims dims, int64_t tiles);
Tiling TileColumns(const tensor::Dims& dims, int64_t tiles, int64_t max_width);

// The positions that a call computes: begin .. end-1 (a tile), or only `thread` (on a GPU), or all positions if
// `begin` and `thread` are null.
struct TileRange {
  Tiling tiling;
  llvm::Value* begin = nullptr;
  llvm::Value* end = nullptr;
  llvm::Value* thread = nullptr;  // The number of this thread among all threads of the kernel.
  int64_t threads = 0;            // The number of threads, which is at least the number of positions.

  bool is_whole() const { return begin == nullptr && thread == nullptr; }
};
TileRange RangeOfTile(Ir& ir, const Tiling& tiling, llvm::Value* tile);

// Emits `body` for the positions of the range in an array of sizes `dims` with as many elements as there are positions.
void ForPositions(Ir& ir, const TileRange& range, const tensor::Dims& dims,
                  const std::function<void(const Index&)>& body);
// Emits `body` for the positions of the range in one loop, with the position as the index.
void ForLinear(Ir& ir, const TileRange& range, int64_t positions, const std::function<void(const Index&)>& body);
// Emits `body` for all indices of `sizes` whose dimensions `fixed` have the given values.
void ForOthers(Ir& ir, tensor::Dims sizes, const std::vector<size_t>& fixed, const Values& values,
               const std::function<void(const Values&)>& body);

}  // namespace xlad::compiler
