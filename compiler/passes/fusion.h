// Fusion: several instructions become one loop over memory.
//
// Needs: simplified step computations without opt-barriers. Leaves: `fusion` instructions that keep the promises of
// compiler/kernel/emit.h (CanEmitInFusion); everything else is a kernel, library op, collective or control flow of its
// own. Scalar constants stand inside the fusions that use them.
//
// Walks from results to parameters. Each instruction joins its users' group where all of them are one group; where it
// has users elsewhere too it becomes a further result of a group that reads it element by element, if that makes no
// cycle; what costs nothing to recompute is copied into every group.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status Fuse(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
