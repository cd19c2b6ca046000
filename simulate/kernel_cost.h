// The cost of one kernel of the compiled program on a chip: matrix units, vector unit, bytes of HBM.
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

  double bytes() const;  // Read and written.
};

// The cost of an instruction that runs on the chip itself: a fusion, or any other instruction except control flow and
// collectives.
//
// Bytes: operands are read and results written once, except that only the needed elements count if an operand is read
// by slices or gathers alone, or updated in place. Vector unit: the operations of each instruction on its elements, in
// tiles of 8 x 128 with the padding of the best choice of the two minor dimensions. Sorts, FFTs, decompositions and
// random bits are operations with a stated number of vector operations (docs/reference/simulate.md), and no more.
KernelCost CostOf(const hlo::Instruction& instruction, const machine::Chip& chip);

// The elements of an array in tiles of 8 x 128, with padding.
double PaddedElements(const hlo::Shape& shape);

}  // namespace xlad::simulate
