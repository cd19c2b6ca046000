// Whether two instructions need different code: repeated layers of a network become one kernel.
#pragma once

#include <cstddef>

#include "hlo/module.h"

namespace xlad::compiler {

// Equal opcode, shapes, attributes and called computations; names, metadata and which operands are given aside.
bool SameCode(const hlo::Instruction& a, const hlo::Instruction& b);
size_t CodeHash(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
