// An estimate of the time of a kernel, from which the number of its tiles is chosen (base/kernel_abi.h). It is a
// function of the program alone, so that results do not depend on the machine that compiles or runs it.
#pragma once

#include <cstdint>

#include "hlo/module.h"

namespace xlad::compiler {

// The estimated time of an instruction, which may be a fusion, on a single core, in nanoseconds: that of its arithmetic
// and that of the bytes that it reads and writes.
double EstimateNs(const hlo::Instruction& root);

// The bytes of operands that an instruction, which may be a fusion, reads, and of results that it writes. If an operand
// has more elements than the results and the arrays that are reduced, only as many are counted as these have. A
// dynamic-update-slice counts the slice only.
double BytesMoved(const hlo::Instruction& root);

// The number of tiles that a kernel is worth: 1 if it takes less time than starting threads, and at most 1024.
int64_t WantedTiles(const hlo::Instruction& root);

}  // namespace xlad::compiler
