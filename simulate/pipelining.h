// Loops whose iterations overlap: software pipelining.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace xlad::simulate {

using InstructionTimes = absl::flat_hash_map<const hlo::Instruction*, double>;

// Whether the iterations of a loop with this body may overlap: it consists of kernels, without collectives, loops and
// branches, and carries a tuple.
bool IsPipelined(const hlo::Computation& body);

// The time that must pass between the starts of two iterations, because a value that one makes is used by the next: the
// longest path from a carried value to one on which it depends again. 0 if each iteration only reads what the loop does
// not change and writes parts of its own. `us` has the time of each kernel of the body. This is the bound of
// recurrences of modulo scheduling (Rau, "Iterative Modulo Scheduling", 1994), or a little more, if values depend on
// each other.
double RecurrenceUs(const hlo::Computation& body, const InstructionTimes& us);

}  // namespace xlad::simulate
