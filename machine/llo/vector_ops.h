// The functions that the scalar and the elementwise instructions of the LLO-like instruction set compute.
#pragma once

#include <cstdint>

#include "machine/llo/isa.h"

namespace xlad::machine {

// Rounds to the nearest bf16, with ties to even. NaN stays NaN.
float RoundToBf16(float value);

// Computes one element: its arguments are the words of up to three sources, and its result is a word. FunctionOf
// returns null if the instruction is not elementwise. Basic arithmetic on floats is rounded once. Other functions of
// floats are computed in double and then rounded. The maximum or minimum is NaN if either source is, and -0 is less
// than +0. A conversion to an integer saturates, and converts NaN to 0. Integers wrap. An integer division by 0 gives a
// word of all ones, and a remainder by 0 gives the dividend. A shift by 32 or more, or by less than 0, shifts all bits
// out; an arithmetic shift then gives 0 or -1, by the sign.
using LloFunction = uint32_t (*)(uint32_t a, uint32_t b, uint32_t c);
LloFunction FunctionOf(LloOp op);

// The sum as integers of 64 bits that wrap, as in sadd and in the addresses of vld and vst.
int64_t WrappedSum(int64_t a, int64_t b);

// The result of a scalar instruction on the values of its sources. Integers wrap. A division or remainder by 0 gives 0.
int64_t ScalarResult(const LloInstruction& instruction, int64_t a, int64_t b);

}  // namespace xlad::machine
