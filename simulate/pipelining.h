// Loops whose iterations overlap: software pipelining.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace xlad::simulate {

using InstructionTimes = absl::flat_hash_map<const hlo::Instruction*, double>;

// Whether the iterations of a loop with this body may overlap. The body must consist of kernels, without collectives,
// loops and branches, and must carry a tuple of at most 256 elements.
bool IsPipelined(const hlo::Computation& body);

// The minimum time between the starts of two iterations, because an iteration uses values of the previous one. It is
// the longest path of kernels from a carried value to itself, or to a carried value that affects it in a later
// iteration. 0 if there is no such path. `us` has the time of each kernel of the body. This is the bound of recurrences
// of modulo scheduling (Rau, "Iterative Modulo Scheduling", 1994), or a little more if different values depend on each
// other.
double RecurrenceUs(const hlo::Computation& body, const InstructionTimes& us);

}  // namespace xlad::simulate
