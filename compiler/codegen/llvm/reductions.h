// Reductions of arrays in memory, with loop orders that read memory forward and vectorize.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/codegen/llvm/elements.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/nest.h"
#include "compiler/codegen/llvm/tiling.h"

namespace xlad::compiler {

// Emits the use of the leaves of reduction `which` at a result index. Called inside the emitted loops, and more than
// once for a reduction if there are separate loops for parts of its results. The emitted code runs once for each
// result.
using ReductionSink = std::function<void(size_t which, const Index& index, const Values& values)>;

// Emits reductions of operands of equal sizes over the same dimensions in one pass, for the results in the range of the
// kernel. If IsColumnReduction is true and the range is a tile, it must be made by TileColumns for the sizes of the
// results and kMaxStrip.
void EmitReductions(KernelContext& kernel, const std::vector<const hlo::Instruction*>& reductions,
                    const ReductionSink& sink);

// Reductions of long rows by blocks of threads on a GPU. A block computes one position of all outputs. In part 0, each
// thread reduces every `threads`-th element. Then each part halves the number of partial results, until two are left.
// In the last part, the first thread combines these two, and computes and writes the outputs.
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

// Whether the innermost dimension whose size is not 1 is kept, so that results are computed in strips. False if the
// operand has no elements.
bool IsColumnReduction(const hlo::Instruction& reduce);

// The maximum number of elements of a strip: 4 KiB of f32, which fits into the first-level cache.
inline constexpr int64_t kMaxStrip = 1024;

}  // namespace xlad::compiler
