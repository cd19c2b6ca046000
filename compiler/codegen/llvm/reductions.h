// Whole reductions: loop orders that read memory forwards and vectorise.
#pragma once

#include <functional>

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

// Takes the leaves of reduction `which` at a result index; called once in the code for each, inside loops.
using ReductionSink = std::function<void(size_t which, const Index& index, const Values& values)>;

// Computes reductions over operands of the same sizes and the same dimensions in one pass.
void EmitReductions(Elements& elements, const std::vector<const hlo::Instruction*>& reductions,
                    const ReductionSink& sink);

}  // namespace xlad::compiler
