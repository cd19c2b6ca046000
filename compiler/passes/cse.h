// Common subexpressions and dead code.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

// Makes one of equal instructions on equal operands, computation by computation. Needs: nothing. Leaves: no two
// equal pure instructions in a step computation. Instructions behind different opt-barriers stay apart, collectives
// and those with side effects too.
absl::Status EliminateCommonSubexpressions(hlo::Module& module, PassContext& context);

// Removes instructions and computations that no result needs.
absl::Status EliminateDeadCode(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
