// Removes opt-barriers. They keep common subexpressions on their two sides apart (recomputation that saves memory), so
// they stay until the last `cse` is done; fusion and buffer assignment do not need them.
//
// Needs: nothing. Leaves: no opt-barrier.
#include "compiler/analysis/hlo_names.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/replace_instructions.h"

namespace xlad::compiler {

absl::Status RemoveBarriers(hlo::Module& module, PassContext&) {
  ReplaceInstructions(module, [](Instruction* instruction) -> Instruction* {
    return instruction->opcode() == Opcode::kOptBarrier ? instruction->operand(0) : nullptr;
  });
  return absl::OkStatus();
}

}  // namespace xlad::compiler
