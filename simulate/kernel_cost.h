// The cost of one kernel of the compiled program on a chip: the times of the matrix units (MXU) and of the vector unit
// (VPU), and the bytes that are read and written.
#pragma once

#include <vector>

#include "hlo/module.h"
#include "machine/chip.h"

namespace xlad::simulate {

struct KernelCost {
  double mxu_us = 0;
  double vpu_us = 0;
  std::vector<double> read_bytes;  // By operand.
  double written_bytes = 0;

  double bytes() const;  // Bytes that are read and written.
};

// The cost of an instruction that runs on the cores of the chip: a fusion, or any other instruction except control flow
// and collectives.
//
// The bytes are those of all operands and results, each read or written once. Only the operands of a large product
// outside fusions are read several times (ReadBytes of systolic.h). If an operand is read only by slices or gathers, or
// is updated in place, only the needed elements count. The vector operations of each instruction are counted on padded
// elements (PaddedElements). Sorts, scans, FFTs, decompositions and random bits are estimated by formulas
// (docs/reference/simulate.md).
KernelCost CostOf(const hlo::Instruction& instruction, const machine::Chip& chip);

// The number of elements of an array that is padded to tiles of 8 x 128. The two tiled dimensions are those that need
// the least padding. An array with fewer than two dimensions is padded to a multiple of 1024 elements. For a tuple, the
// result is that of its largest array.
double PaddedElements(const hlo::Shape& shape);

}  // namespace xlad::simulate
