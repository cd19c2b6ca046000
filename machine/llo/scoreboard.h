// Estimates the time of a kernel of the LLO-like instruction set. At most four iterations of each loop are simulated.
#pragma once

#include "machine/chip.h"
#include "machine/llo/isa.h"

namespace xlad::machine {

struct LloTime {
  double us = 0;
  // Busy time of the matrix units (their mean), the vector unit and HBM.
  double mxu_us = 0, vpu_us = 0, hbm_us = 0;
  // The time in which no bundle can be issued because sources are not ready, a unit is busy, or a copy is not complete.
  double stall_us = 0;
  double hbm_bytes = 0;
  double bundles = 0;  // The number of issued bundles.
};

// The number of matrix units of 128 x 128 of a core, from 1 to 64. An array of 256 x 256 counts as four.
int MatrixUnitsOf(const Chip& chip);

// A scoreboard: bundles are issued in order, at most one per cycle. A bundle waits until its sources are ready, its
// units are free and its copies have arrived. The kernel must be verified.
//   - isa.def has the latencies of the instructions.
//   - The number of cycles in which a matrix unit multiplies 8 rows follows from the peak rate of the chip.
//   - At most one extended function is issued in two cycles.
//   - Copies use HBM one after the other at its rate, in pieces of 64 bytes, and arrive kDmaLatencyUs later.
//   - In a loop, the first three iterations and the last are timed; the others take as long as the third. After 2^24
//     bundles and loops, only the first iteration of a loop is timed.
//   - The cores of a chip share a kernel evenly.
//   - A macro-operation takes the time of its vector operations or of its bytes, whichever is longer, plus
//     kDmaLatencyUs.
// Latencies, intervals and kDmaLatencyUs are assumptions. Rates are those of the chip file.
LloTime TimeLlo(const LloProgram& program, const LloKernel& kernel, const Chip& chip);
inline constexpr double kDmaLatencyUs = 0.5;

}  // namespace xlad::machine
