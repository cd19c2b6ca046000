// An estimate of the time of a kernel, from which the number of its tiles is chosen (base/kernel_abi.h). The estimate
// depends only on the program, so that results do not depend on the machine that compiles or runs the program.
#pragma once

#include <cstdint>

#include "hlo/module.h"

namespace xlad::compiler {

// The estimated time of an instruction, which may be a fusion, on a single core, in nanoseconds. It is the sum of the
// time for arithmetic and the time for reading and writing memory.
double EstimateNs(const hlo::Instruction& root);

// Whether a dot or convolution has enough lines (rows and columns) and depth for CPU kernels to compute it in blocks of
// packed operands, unless it is a library op. Kernels of ragged dots have blocks of any size, but small ones take as
// long as single elements.
bool IsWorthBlocks(const hlo::Instruction& product);

// Whether a convolution has at least four groups, each of which has one feature of the input and one of the result: a
// depthwise convolution without a channel multiplier, or its gradient with respect to the kernel.
bool IsDepthwise(const hlo::Instruction& product);
// The dimension of the input in which the groups of a depthwise convolution are.
int64_t InputDimensionOfGroups(const hlo::Instruction& depthwise);
// Whether a convolution is depthwise, and the elements of neighboring groups are neighbors in both operands and in the
// result, as in channels-last images. CPU kernels compute such convolutions for vectors of groups, unless they are
// library ops.
bool HasVectorsOfGroups(const hlo::Instruction& product);

// Whether the last dimension of a select-and-scatter has no windows and at least 8 elements, as the channels of
// channels-last images. CPU kernels compute vectors of it.
bool HasVectorsOfColumns(const hlo::Instruction& select_and_scatter);

// The bytes that an instruction, which may be a fusion, reads and writes. The operands of dots, convolutions, other
// library ops and topk are counted completely. Any other operand counts as at most as many elements as the largest
// result or reduced array has.
// For a dynamic-update-slice, or a fusion whose root is one, only the slice is counted, as read and written.
double BytesMoved(const hlo::Instruction& root);

// The number of tiles into which a kernel should be divided: 1 if the kernel takes less than 12 microseconds, otherwise
// one for every 3 microseconds, but at most 1024.
int64_t WantedTiles(const hlo::Instruction& root);

}  // namespace xlad::compiler
