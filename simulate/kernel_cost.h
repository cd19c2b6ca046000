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

  double bytes() const;  // Bytes that are read and written.
};

// The cost of an instruction that runs on the cores of the chip: a fusion, or any other instruction except control flow
// and collectives.
//
// The bytes are those of all operands and results, each read or written once. Only the operands of a large product
// outside fusions are read several times (ReadBytes of systolic.h). If an operand is read only by slices or gathers, or
// is updated in place, only the needed elements count. The vector operations of each instruction are counted on padded
// elements (PaddedElements). Those of sorts, FFTs, decompositions and random bits are estimates by formulas
// (docs/reference/simulate.md).
KernelCost CostOf(const hlo::Instruction& instruction, const machine::Chip& chip);

// The elements of an array in tiles of 8 x 128, with padding. The two dimensions that are tiled are those that need the
// least padding. The result for a tuple is that of its largest array.
double PaddedElements(const hlo::Shape& shape);

}  // namespace xlad::simulate
