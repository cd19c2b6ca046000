// For passes that change loops.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Calls `change` for every while of every step computation, inner loops first. `change` returns whether it changed
// instructions of the computation of the loop, from which dead code is then removed. Returns whether any call did.
bool ChangeLoops(hlo::Module& module, absl::FunctionRef<bool(Instruction* loop)> change);

// Removes the dead carried elements of a loop, which must have the tuple form (HasTupleForm). An element is live if it
// is read after the loop, in the condition, or in the body for a live element or a side effect. If an instruction uses
// the loop's result as a whole, or the loop is the root of its computation, all elements are live. FinishEdits must be
// called afterwards.
void DropDeadElements(Instruction* loop);

// Whether the carried elements of a loop can be changed: it has the tuple form, its result is read only by
// get-tuple-elements, and it is not the root of its computation.
bool MayChangeElements(const Instruction& loop);
// Adds carried elements that the body does not change to a loop for which MayChangeElements is true. Returns their
// get-tuple-elements in the body.
std::vector<Instruction*> CarryUnchanged(Instruction* loop, absl::Span<Instruction* const> values);

}  // namespace xlad::compiler
