// Small all-reduces of one kind as one.
//
// Needs: canonical collectives. Leaves: all-reduces with several operands where there were several small ones of the
// same group, reduction and type that do not depend on each other (directly or through other combined ones): one
// message instead of many. Each keeps its own result; the combined one names all their causes.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status CombineCollectives(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
