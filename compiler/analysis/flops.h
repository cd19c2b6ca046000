// The floating-point operations of an instruction, as performance reports count them.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

// Each multiplication and each addition of a dot, ragged dot or convolution counts as one operation; a multiply-add of
// complex numbers counts as eight. An elementwise instruction whose result has real or complex floats, other than a
// convert or bitcast-convert, counts as one operation per element, whatever it costs. A reduction or scan counts, for
// each element of its first operand, one operation per elementwise instruction of this kind in its computation. A
// reduce-window does so for each element of each window, a scatter for each element of its updates, and a
// select-and-scatter for both. An fft of n points counts as 5 n log2(n). Linear algebra counts as the terms of third
// degree of the usual algorithm, without the iterations that find eigenvalues and singular values. A fusion counts as
// the sum of its instructions. All other instructions count as 0.
double FlopsOf(const hlo::Instruction& instruction);

}  // namespace xlad::compiler
