// Reductions of long rows by blocks of threads on a GPU. A block computes one position of all outputs. In part 0, each
// thread reduces every `threads`-th element. Then each part halves the number of partial results, until two are left.
// In the last part, the first thread combines these two, and computes and writes the outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/nest.h"

namespace xlad::compiler {

struct BlockReduction {
  std::vector<const hlo::Instruction*> group;
  int64_t positions = 0;
  int64_t extent = 0;  // The number of elements that are reduced to one result.
  int64_t threads = 0;

  int parts() const;
};
// Nullopt unless one pass over rows of at least 64 elements computes all reductions of the kernel. Every result must be
// read only at its own position, and each output must have one element for each result. Also nullopt if a reducer has
// no neutral element (Reducer::Neutral), or if the partial results do not fit into shared memory.
std::optional<BlockReduction> BlockReductionOf(KernelContext& kernel);
void EmitBlockReduction(KernelContext& kernel, const BlockReduction& reduction, int part, SharedMemory* shared);

}  // namespace xlad::compiler
