// The loop that passes of local rewrites share.
#pragma once

#include "absl/functional/function_ref.h"
#include "hlo/module.h"

namespace xlad::compiler {

// Calls `replacement` for every instruction of every step computation, operands before users. If it returns not null,
// which may be an operand or new instructions in the same computation, replaces all uses. Then removes dead code from
// the computations that changed. New instructions are not visited.
void ReplaceInstructions(hlo::Module& module,
                         absl::FunctionRef<hlo::Instruction*(hlo::Instruction*)> replacement);

}  // namespace xlad::compiler
