// Instructions without work.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// Returns true if the instruction only names values: it takes no time, and makes no array in memory.
bool IsTransparent(const Instruction& instruction);

}  // namespace xlad::hlo
