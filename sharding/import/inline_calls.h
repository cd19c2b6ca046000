// Inlines calls and fusions, so that a program is one graph per control-flow region. Import does this before it reads
// the annotations.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::sharding {

// Replaces every call and every fusion by a copy of the callee's instructions. A copy that has no source line gets the
// source line of the call. Then clones every body, condition and branch that several instructions share, because the
// values in each copy can have different shardings. Finally forwards the elements of tuples, and removes unused
// instructions and computations. Returns InvalidArgument if the result would have more than 4 million instructions, if
// calls and loops nest more than 1,000 deep, or if a manual computation has no valid manual axes. Returns Unimplemented
// if a fusion with several results has a sharding.
absl::Status InlineCalls(hlo::Module* module);

// Replaces all uses of get-tuple-element(tuple(...)) by the element, and all uses of a reshape to the same shape by its
// operand.
void ForwardTupleElements(hlo::Computation* computation);

// The computations that propagation works on: the entry and the bodies, conditions and branches that can be reached
// from it. A computation comes before the computations that it calls.
std::vector<hlo::Computation*> FlowComputations(const hlo::Module& module);

// Whether the instruction is a while or a conditional. The values in the computations that these call have shardings;
// other called computations are scalar functions.
bool IsControlFlow(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
