// Whether two instructions can share one kernel, so that the repeated layers of a network are compiled once.
#pragma once

#include <cstddef>

#include "hlo/module.h"

namespace xlad::compiler {

// True if code for `a` is also code for `b`. The opcodes, the shapes of results and operands, the attributes and the
// called computations must be equal. So must the values of constant operands and the positions of repeated operands.
// Names, metadata, layouts and the other operands may differ. This is structural equality, as in hash consing: CodeHash
// finds candidates, and SameCode compares them.
//
//   add(x, x) and add(y, y)    same code, which reads one pointer twice
//   add(x, y)                  different code
bool SameCode(const hlo::Instruction& a, const hlo::Instruction& b);

// A hash that is equal for instructions with the same code.
size_t CodeHash(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
