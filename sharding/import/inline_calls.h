// Makes a program one flat graph a control-flow region: what import does before it reads annotations.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::sharding {

// Puts a copy of the callee in place of every call, reached from anywhere; instructions without a source of their
// own take the call's. get-tuple-element of a tuple becomes the element. Afterwards every body, condition and
// branch is called from one place (shared ones are cloned), so that each value can have its own sharding, and
// nothing unused is left. InvalidArgument where that would be more than 4 million instructions.
absl::Status InlineCalls(hlo::Module* module);

// A frontend attribute: the axes ("dp,sp") that are manual around an instruction, set when the body of a manual
// computation (jax.shard_map) is inlined. What is inside a loop or branch is manual over the loop's axes too.
inline constexpr const char* kManualAxes = "xlad.manual_axes";

// get-tuple-element(tuple(...)) -> the element, and reshapes and copies of nothing (same shape) -> their operand.
void ForwardTupleElements(hlo::Computation* computation);

// The computations that propagation works on: the entry, and bodies, conditions and branches reached from it,
// callers first.
std::vector<hlo::Computation*> FlowComputations(const hlo::Module& module);

// Whether an instruction's called computations are part of the flow (while, conditional), not scalar functions.
bool IsControlFlow(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
