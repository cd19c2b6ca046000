// The floating-point operations of an instruction, as performance reports count them.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

// Multiplications and additions of dots and convolutions count as one operation each; elementwise instructions on
// floats count one for each element, whatever they cost; a reduction counts one for each element and instruction of its
// computation. Instructions that only move data, and those of linear algebra, count 0. A fusion has the sum of what is
// in it.
double FlopsOf(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
