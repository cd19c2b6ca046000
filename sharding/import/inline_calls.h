// Inlines calls, so that a program is one graph per control-flow region. The first step of Import.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::sharding {

// Replaces every call by a copy of the callee's instructions. Copies without a source line get the call's. Afterwards
// every body, condition and branch belongs to one instruction (shared ones are cloned), so that each value can have its
// own sharding; elements of tuples are forwarded, and unused instructions and computations are removed. InvalidArgument
// if the result would have more than 4 million instructions or if calls nest more than 1,000 deep.
absl::Status InlineCalls(hlo::Module* module);

// Replaces the users' operands: get-tuple-element(tuple(...)) by the element, and a reshape to the same shape by its
// operand.
void ForwardTupleElements(hlo::Computation* computation);

// The computations that propagation works on: the entry and the bodies, conditions and branches reached from it. A
// computation comes before those that it calls.
std::vector<hlo::Computation*> FlowComputations(const hlo::Module& module);

// Whether the computations that an instruction calls have shardings (while, conditional). Others are scalar functions.
bool IsControlFlow(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
