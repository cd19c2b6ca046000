// For passes that change loops.
#pragma once

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Replaces a loop in the tuple form (HasTupleForm), of which other instructions use only elements, by a loop without
// the dead carried elements. Dead elements are read neither after the loop nor in the condition, nor in the body for an
// element that is not dead. FinishEdits must be called afterwards.
void DropDeadElements(Instruction* loop);

}  // namespace xlad::compiler
