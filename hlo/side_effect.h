// Whether an instruction must run even if its result is unused.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// Looks at the instruction itself, not at the computations that it calls.
inline bool HasSideEffect(const Instruction& instruction) {
  return (Flags(instruction.opcode()) & kSideEffect) != 0 || instruction.attributes().has_side_effect;
}

}  // namespace xlad::hlo
