// Finds the values of a computation that stay in VMEM between the kernels that compute and read them.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "hlo/module.h"

namespace xlad::simulate {

// The instruction that computes the value of `operand`, looking through reshapes and bitcasts, which do not change it.
// An element of a tuple is its get-tuple-element.
const hlo::Instruction* ValueOf(const hlo::Instruction* operand);

// The values (ValueOf) that are neither written to HBM nor read from it. A value can stay if it is an array that a
// kernel computes, if at least one kernel and only kernels of the same computation read it, if it is not the result of
// the computation, and if all values that stay at the same time take at most half of VMEM. The other half is for the
// tiles of the running kernel. Values are chosen greedily in program order: a value that fits when it is computed stays
// until its last reader.
absl::flat_hash_set<const hlo::Instruction*> ResidentValues(const hlo::Computation& computation, double vmem_bytes);

// Whether the instruction takes no time, because it only names values or returns the number of the device.
bool TakesNoTime(const hlo::Instruction& instruction);

}  // namespace xlad::simulate
