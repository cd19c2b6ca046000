// The cost of recomputing one element of an instruction, and whether the instruction may be fused.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

enum class OpCost {
  kFree,        // Index arithmetic or a register move: broadcast, reshape, slice, widening convert, scalar constant.
  kCheap,       // A few machine instructions: add, multiply, compare, select.
  kExpensive,   // Tens of cycles, or a loop: divide, exponential, gather, reduce.
  kNotFusible,  // Must be a step by itself.
};

OpCost CostOf(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
