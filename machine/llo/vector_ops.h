// What the scalar and the elementwise instructions of the LLO-like instruction set compute.
#pragma once

#include <cstdint>

#include "machine/llo/isa.h"

namespace xlad::machine {

// To the nearest bf16, ties to even; NaN stays NaN.
float RoundToBf16(float value);

// One element: words of up to three sources to a word. Null for instructions that are not elementwise. Floats are
// computed in double and rounded once; integers wrap; a division by 0 gives -1, a remainder of 0 the dividend; maximum
// and minimum of a NaN are NaN, and -0 is less than +0; a shift by 32 or more, or by less than 0, shifts everything
// out.
using LloFunction = uint32_t (*)(uint32_t a, uint32_t b, uint32_t c);
LloFunction FunctionOf(LloOp op);

// The result of a scalar instruction on the values of its sources. A division by 0 gives 0.
int64_t ScalarResult(const LloInstruction& instruction, int64_t a, int64_t b);

}  // namespace xlad::machine
