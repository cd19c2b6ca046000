// The time of a kernel of the LLO-like instruction set on a core, from one iteration of each of its loops.
#pragma once

#include "machine/chip.h"
#include "machine/llo/isa.h"

namespace xlad::machine {

struct LloTime {
  double us = 0;
  // Busy time of the matrix units (their mean), the vector unit and HBM.
  double mxu_us = 0, vpu_us = 0, hbm_us = 0;
  double stall_us = 0;  // No bundle can be issued: sources are not ready, a unit is busy, or DMA is waited for.
  double hbm_bytes = 0;
  double bundles = 0;  // Issued.
};

// The number of matrix units of 128 x 128 of a core: an array of 256 x 256 is four.
int MatrixUnitsOf(const Chip& chip);

// A scoreboard: bundles are issued in order, one per cycle, and wait until their sources can be used, their units are
// free and what they wait for has arrived. The latency of an instruction is that of its row in isa.def. A matrix unit
// takes 8 rows in as many cycles as the peak rate of the chip says; extended functions are issued every other cycle.
// Copies use HBM one after the other at its rate, in pieces of 64 bytes, and arrive kDmaLatencyUs later. In a loop,
// the first three iterations and the last are timed; the others take as long as the third. The cores of a chip share a
// kernel evenly. A macro-operation takes the longer of its vector operations and its bytes.
//
// Latencies, intervals and the time of a copy to arrive are assumptions; rates are those of the chip file. The kernel
// must be verified.
LloTime TimeLlo(const LloProgram& program, const LloKernel& kernel, const Chip& chip);
inline constexpr double kDmaLatencyUs = 0.5;

}  // namespace xlad::machine
