// Reductions of arrays in memory, with loop orders that read memory forward and vectorize.
#pragma once

#include <functional>
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

// Whether the innermost dimension whose size is not 1 is kept, so that results are computed in strips. False if the
// operand has no elements.
bool IsColumnReduction(const hlo::Instruction& reduce);

// The maximum number of elements of a strip: 4 KiB of f32, which fits into the first-level cache.
inline constexpr int64_t kMaxStrip = 1024;

}  // namespace xlad::compiler
