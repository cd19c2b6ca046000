// Instructions that do no work at run time.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// Returns true if the instruction only provides, renames or groups values that already exist: parameters, constants,
// tuples, their elements and reshapes. Such an instruction takes no time and allocates no memory.
bool IsTransparent(const Instruction& instruction);

}  // namespace xlad::hlo
