// Loops whose iterations overlap: software pipelining.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace xlad::simulate {

using InstructionTimes = absl::flat_hash_map<const hlo::Instruction*, double>;

// Whether the iterations of a loop with this body may overlap. The body must consist of kernels, without collectives,
// loops or branches, and must carry a tuple of at most 256 elements.
bool IsPipelined(const hlo::Computation& body);

// The minimum time between the starts of two successive iterations, given that an iteration uses values of the previous
// one. It is the longest path of kernels in the body from a carried value to itself, or to another carried value that
// affects the first one in a later iteration. 0 if there is no such path. `us` has the times of the kernels of the
// body; a kernel that is not in it takes no time. If each value depends only on itself, this is the recurrence bound of
// modulo scheduling (Rau, "Iterative Modulo Scheduling", 1994). If values depend on each other, it may be larger than
// that bound.
double RecurrenceUs(const hlo::Computation& body, const InstructionTimes& us);

}  // namespace xlad::simulate
