// Replaces every `call` by its callee's instructions, and gives each while and conditional computations of its own.
//
// Needs: a verified module. Leaves: no `call`; no step computation that two instructions call.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

// ResourceExhausted where inlining would make more than 4 million instructions.
absl::Status InlineCalls(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
