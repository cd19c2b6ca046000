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
};

// Nullopt unless the request is a transpose that moves the last dimension, with at least 8 rows and columns, elements
// of at most 8 bytes, and no result that shares the memory of an operand.
std::optional<TileTranspose> TileTransposeOf(const KernelRequest& request);

// Emits one of the two parts. Part 0 (`is_store` is false) copies from the operand to shared memory. Part 1 (`is_store`
// is true) copies from shared memory to the result.
void EmitTilePart(KernelContext& kernel, const TileTranspose& transpose, const ArrayView& operand, bool is_store,
                  SharedMemory* shared);

}  // namespace xlad::compiler
