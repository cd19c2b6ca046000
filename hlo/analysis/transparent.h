// Instructions that do no work at run time.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// Returns true if the instruction only renames or groups existing values: it takes no time and allocates no memory.
bool IsTransparent(const Instruction& instruction);

}  // namespace xlad::hlo
