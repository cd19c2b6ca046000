#include "compiler/passes/replace_instructions.h"

#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"

namespace xlad::compiler {

void ReplaceInstructions(Module& module, absl::FunctionRef<Instruction*(Instruction*)> replacement) {
  for (Computation* computation : StepComputations(module)) {
    bool changed = false;
    for (Instruction* instruction : Snapshot(*computation)) {
      Instruction* replaced_by = replacement(instruction);
      if (replaced_by == nullptr) continue;
      instruction->ReplaceAllUsesWith(replaced_by);
      changed = true;
    }
    if (changed) FinishEdits(computation);
  }
}

}  // namespace xlad::compiler
