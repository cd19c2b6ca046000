// Which results of an instruction may be written over which of its operands.
#pragma once

#include <utility>
#include <vector>

#include "hlo/module.h"

namespace xlad::compiler {

// (result leaf, operand leaf) pairs, each of equal bytes; operand leaves are counted over all operands. What the
// instruction's code must keep to is in compiler/kernel/emit.h. Empty where nothing may be shared.
std::vector<std::pair<int, int>> MayShareMemory(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
