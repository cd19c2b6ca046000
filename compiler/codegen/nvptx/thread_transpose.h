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

// Nullopt unless the request is a transpose that moves the last dimension and whose result does not share memory with
// the operand. There must be at least 8 rows and columns, and an element may have at most 8 bytes.
std::optional<TileTranspose> TileTransposeOf(const KernelRequest& request);

// Emits one of the two parts. Part 0 (`is_store` is false) copies from the operand to shared memory. Part 1 (`is_store`
// is true) copies from shared memory to the result.
void EmitTilePart(KernelContext& kernel, const TileTranspose& transpose, const ArrayView& operand, bool is_store,
                  SharedMemory* shared);

}  // namespace xlad::compiler
