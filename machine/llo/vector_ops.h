// The functions that the scalar and the elementwise instructions of the LLO-like instruction set compute.
#pragma once

#include <cstdint>

#include "machine/llo/isa.h"

namespace xlad::machine {

// Rounds to the nearest bf16, with ties to even. NaN stays NaN.
float RoundToBf16(float value);

// The word of 32 bits of an element of a narrow type, whose bits are the lowest of `bits`, and the reverse. Floats of
// 16 and 8 bits become f32; the reverse rounds to nearest, with ties to even. Floats of 8 bits overflow to infinity if
// the type has one, otherwise to NaN. Integers are extended; the reverse drops their high bits. Other types are
// returned unchanged.
uint32_t WordOfElement(LloType type, uint32_t bits);
uint32_t ElementOfWord(LloType type, uint32_t word);

// Computes one element of an elementwise instruction. The arguments are the words of up to three sources; the result is
// a word.
//   floats       Basic arithmetic is rounded once. Other functions are computed in double and then rounded. The
//                maximum or minimum is NaN if either source is NaN, and -0 is less than +0.
//   integers     Results wrap. A division by 0 returns a word of all ones, and a remainder by 0 the dividend. A shift
//                by 32 or more, or by less than 0, shifts all bits out; an arithmetic shift then returns 0 or -1, by
//                the sign.
//   conversions  A conversion to an integer saturates, and converts NaN to 0.
using LloFunction = uint32_t (*)(uint32_t a, uint32_t b, uint32_t c);
// Returns null if the instruction is not elementwise.
LloFunction FunctionOf(LloOp op);

// The sum as a 64-bit integer that wraps, as in sadd and in the addresses of vld and vst.
int64_t WrappedSum(int64_t a, int64_t b);

// The result of a scalar instruction whose sources have the values `a` and `b`. Integers wrap. A division or remainder
// by 0 returns 0.
int64_t ScalarResult(const LloInstruction& instruction, int64_t a, int64_t b);

}  // namespace xlad::machine
