// The loop of all passes that rewrite single instructions.
#pragma once

#include "absl/functional/function_ref.h"
#include "hlo/module.h"

namespace xlad::compiler {

// Calls `replacement` for every instruction of every step computation, operands before users. If `replacement` returns
// an instruction instead of null, all uses are replaced by it. It may be an operand or a new instruction in the same
// computation. New instructions are not visited. At the end, removes dead code from the computations that changed.
void ReplaceInstructions(hlo::Module& module,
                         absl::FunctionRef<hlo::Instruction*(hlo::Instruction*)> replacement);

}  // namespace xlad::compiler
