// The cost of recomputing one element of an instruction, and whether the instruction may be fused.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

enum class OpCost {
  kFree,       // Index arithmetic or a register move, such as broadcast, reshape, slice, iota or a scalar constant.
  kCheap,      // A few machine instructions, such as add, multiply, compare or select.
  kExpensive,  // Tens of cycles, or a loop, such as divide, exponential, gather or reduce.
  // Must be a step by itself. A reduction of tuples has this cost too, but it can be the root of a fusion.
  kNotFusible,
};

OpCost CostOf(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
