// Transposes by blocks of threads: a tile of the operand is read along its rows into shared memory and written along
// its columns, so that both are accesses of adjacent threads to adjacent elements.
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/nest.h"
#include "compiler/codegen/llvm/transposes.h"

namespace xlad::compiler {

struct TileTranspose {
  Run rows, columns;       // Contiguous in the operand, and in the result.
  std::vector<Run> outer;  // The other dimensions.
};

// Nullopt unless the request is a transpose of arrays that moves the last dimension, with at least 8 rows and columns.
std::optional<TileTranspose> TileTransposeOf(const KernelRequest& request);

// Emits one of the two parts: from the operand to shared memory, or from there to the result.
void EmitTilePart(KernelContext& kernel, const TileTranspose& transpose, const ArrayView& operand, bool is_store,
                  SharedMemory* shared);

}  // namespace xlad::compiler
