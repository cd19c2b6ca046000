// The pairs of a result and an operand of an instruction that may share memory.
#pragma once

#include <utility>
#include <vector>

#include "hlo/module.h"

namespace xlad::compiler {

// Returns (result leaf, operand leaf) pairs of equal size in bytes; operand leaves are numbered across all operands.
// Empty if no result may share memory with an operand. compiler/kernel/object_emitter.h states what generated code must
// do for this to be correct. For example
//
//   add(x, y)                              {0, 0}, {0, 1}: over either operand
//   dynamic-update-slice(x, update, i)     {0, 0}: over x
//   fusion that computes x + reverse(y)    {0, 0}: x is read only at the index that is written, y is not
std::vector<std::pair<int, int>> MayShareMemory(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
