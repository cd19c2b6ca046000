// Evaluates at compile time what depends on constants only, as far as it is small.
//
// Needs: nothing. Leaves: no pure instruction with at most 4,096 result elements whose operands are all constants of
// that size. Broadcasts and iotas stay: code makes them for nothing.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status FoldConstants(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
