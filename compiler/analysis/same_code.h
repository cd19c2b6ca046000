// Whether two instructions need different code: repeated layers of a network become one kernel.
#pragma once

#include <cstddef>

#include "hlo/module.h"

namespace xlad::compiler {

// Equal opcode, shapes, attributes, called computations, constant operands, and which operands are one and the same;
// names, metadata and which other operands are given aside.
bool SameCode(const hlo::Instruction& a, const hlo::Instruction& b);
size_t CodeHash(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
