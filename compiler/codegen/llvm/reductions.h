// Reductions of arrays in memory, with loop orders that read memory forward and vectorize.
#pragma once

#include <functional>

#include "compiler/codegen/llvm/elements.h"
#include "compiler/codegen/llvm/tiling.h"

namespace xlad::compiler {

// Receives the leaves of reduction `which` at a result index. Called once for each reduction, inside the emitted loops.
using ReductionSink = std::function<void(size_t which, const Index& index, const Values& values)>;

// Emits reductions of operands of equal sizes over the same dimensions in one pass, for the results in `range`. If
// IsColumnReduction is true, the range must be made by TileColumns for the sizes of the results and kMaxStrip.
void EmitReductions(Elements& elements, const std::vector<const hlo::Instruction*>& reductions, const TileRange& range,
                    const ReductionSink& sink);

// Whether the innermost dimension is kept, so that results are computed in strips.
bool IsColumnReduction(const hlo::Instruction& reduce);

// Elements of a strip: 4 KiB of f32, which fits into the first-level cache.
inline constexpr int64_t kMaxStrip = 1024;

}  // namespace xlad::compiler
