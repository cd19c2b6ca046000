// For passes that change loops: the walk over loops, the unrolling of a loop, and the addition of carried elements.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Calls `change` for every while of every step computation, inner loops first. `change` returns whether it changed
// instructions of the computation of the loop, from which dead code is then removed. Returns whether any call did.
bool ChangeLoops(hlo::Module& module, absl::FunctionRef<bool(Instruction* loop)> change);

// Appends `iterations` copies of the loop's body to the computation of the loop. Returns the final state. The loop
// itself remains.
Instruction* UnrolledLoop(const Instruction& loop, int64_t iterations);

// Whether the carried elements of a loop can be changed: it has the tuple form, its result is read only by
// get-tuple-elements, and it is not the root of its computation.
bool MayChangeElements(const Instruction& loop);
// Adds carried elements that the body does not change to a loop for which MayChangeElements is true. Returns their
// get-tuple-elements in the body.
std::vector<Instruction*> CarryUnchanged(Instruction* loop, absl::Span<Instruction* const> values);

}  // namespace xlad::compiler
