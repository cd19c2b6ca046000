// Loops made simpler while they are still HLO.
//
// Needs: every while has computations of its own (InlineCalls), simplified. Leaves: carried constants stand in the
// body; a carried element that nobody reads is gone; loops of few rounds without dots or collectives are unrolled,
// so that what they compute can be fused (threefry's five rounds).
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status SimplifyLoops(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
