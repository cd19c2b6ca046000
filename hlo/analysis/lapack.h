// Custom calls to LAPACK routines.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "tensor/lapack_call.h"

namespace xlad::hlo {

// Whether the instruction is a custom call with the target of a LAPACK routine.
bool IsLapackCall(const Instruction& instruction);

// Describes what a LAPACK call computes. IsLapackCall(instruction) must be true. Errors: InvalidArgument if the
// operands and results are not those of the routine.
absl::StatusOr<tensor::LapackCall> LapackCallOf(const Instruction& instruction);

}  // namespace xlad::hlo
