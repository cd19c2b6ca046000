// Transposes by blocks of threads: a tile of the operand is read along its rows into shared memory and written along
// its columns. In both steps, adjacent threads access adjacent elements.
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/nest.h"
#include "compiler/codegen/llvm/transposes.h"

namespace xlad::compiler {

struct TileTranspose {
  Run rows, columns;       // The contiguous dimension of the operand, and that of the result.
  std::vector<Run> outer;  // The other dimensions.
  // The size of a tile: 32 x 32. If there are fewer rows or columns, a tile has all of them, and more of the others.
  int64_t tile_rows = 0, tile_columns = 0;
};

// Nullopt unless the request is a transpose that moves the last dimension and whose result does not share memory with
// the operand. An element may have at most 8 bytes. There must be at least 8 rows and columns, or at least 2 of one and
// 64 of the other.
std::optional<TileTranspose> TileTransposeOf(const KernelRequest& request);

// Emits one of the two parts. Part 0 (`is_store` is false) copies from the operand to shared memory. Part 1 (`is_store`
// is true) copies from shared memory to the result.
void EmitTilePart(KernelContext& kernel, const TileTranspose& transpose, const ArrayView& operand, bool is_store,
                  SharedMemory* shared);

}  // namespace xlad::compiler
