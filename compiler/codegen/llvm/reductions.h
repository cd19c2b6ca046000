// Reductions of arrays in memory, with loop orders that read memory forward and vectorize.
#pragma once

#include <functional>

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

// Receives the leaves of reduction `which` at a result index. Called once for each reduction, inside the emitted loops.
using ReductionSink = std::function<void(size_t which, const Index& index, const Values& values)>;

// Emits reductions of operands of equal sizes over the same dimensions in one pass.
void EmitReductions(Elements& elements, const std::vector<const hlo::Instruction*>& reductions,
                    const ReductionSink& sink);

}  // namespace xlad::compiler
