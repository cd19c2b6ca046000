// Removes control edges, which order an instruction after another one whose result it does not use.
//
// No such order is visible: instructions with side effects are refused, and the devices of a program execute its
// collectives in the same order. Control edges only keep dead instructions, and they would have to be moved whenever a
// pass replaces an instruction by others.
//
// Needs: nothing. Leaves: no control edge.
#include "compiler/passes/passes.h"

namespace xlad::compiler {

absl::Status DropControlEdges(hlo::Module& module, PassContext&) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) instruction->ClearControlPredecessors();
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
