// Dots with transposes folded into their dimension numbers.
//
// Needs: simplified. Leaves: no dot that reads a transpose, and no transpose that is the only reader of a dot, where
// dimension numbers or the order of the operands can say the same.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status CanonicaliseDots(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
