// Counts of the work of instructions, for cost models and limits. They are doubles, because they may exceed 2^63.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// The number of products that are summed for each element of the result of a dot: the product of the contracted sizes.
// 1 for an instruction without dot dimensions.
double ContractedElements(const Instruction& instruction);

// The number of elements of a window: the product of its sizes. 1 for an instruction without a window.
double WindowElements(const Instruction& instruction);

// The floating-point operations of a dot (not ragged-dot or scaled-dot) and of a convolution. A multiplication and an
// addition count as two operations.
//
//   dot f32[M,K] x f32[K,N]                     2 M N K
//   convolution with kernel [H,W,I,O]           2 H W I for each element of the result
double DotFlops(const Instruction& dot);
double ConvolutionFlops(const Instruction& convolution);

}  // namespace xlad::hlo
