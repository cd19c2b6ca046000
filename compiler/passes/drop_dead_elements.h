// The removal of the dead carried elements of a loop.
#pragma once

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Removes the dead carried elements of a loop, which must have the tuple form (HasTupleForm). An element is live if it
// is read after the loop, in the condition, or in the body for a live element or a side effect. If an instruction uses
// the loop's result as a whole, or the loop is the root of its computation, all elements are live. FinishEdits must be
// called afterwards.
void DropDeadElements(Instruction* loop);

}  // namespace xlad::compiler
