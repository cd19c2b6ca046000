// Custom calls to LAPACK routines.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "tensor/lapack_call.h"

namespace xlad::hlo {

// Whether the instruction is a custom call with the target of a LAPACK routine.
bool IsLapackCall(const Instruction& instruction);

// What a LAPACK call computes. InvalidArgument if its operands and results are not those of the routine. Needs
// IsLapackCall.
absl::StatusOr<tensor::LapackCall> LapackCallOf(const Instruction& instruction);

}  // namespace xlad::hlo
