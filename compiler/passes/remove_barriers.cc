// Removes opt-barriers. Programs recompute values after a barrier to save memory, and the barrier keeps `cse` from
// merging them with the values before it. Therefore barriers are removed only after the last `cse`. Fusion and buffer
// assignment do not need them.
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
