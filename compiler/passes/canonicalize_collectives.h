// Collectives as the runtime knows them: over flat, contiguous buffers.
//
// Needs: no layouts. Leaves: all-gather, reduce-scatter and all-to-all have one array operand and run along
// dimension 0, with reshapes and transposes around where the program said otherwise; a collective among groups of one
// device is gone; asynchronous pairs are one synchronous collective.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

// InvalidArgument for groups that do not fit the mesh.
absl::Status CanonicaliseCollectives(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
