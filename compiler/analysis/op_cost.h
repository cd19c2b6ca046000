// How dear it is to compute an element of an instruction again, and whether it may be fused at all.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

enum class OpCost {
  kFree,        // Index arithmetic or a register move: broadcast, reshape, slice, convert, iota, scalar constant.
  kCheap,       // One or a few instructions: add, multiply, compare, select.
  kExpensive,   // Tens of cycles or a loop: divide, exponential, gather, reduce.
  kNotFusible,  // A step of its own.
};

OpCost CostOf(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
