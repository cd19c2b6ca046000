// Removes instructions on which no result depends, and computations without callers.
//
// Needs: nothing. Leaves: every instruction is live or has side effects.
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/passes.h"

namespace xlad::compiler {

absl::Status EliminateDeadCode(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) computation->RemoveDead();
  module.RemoveUnusedComputations();
  return absl::OkStatus();
}

}  // namespace xlad::compiler
