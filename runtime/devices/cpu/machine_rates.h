// The speed of this machine in copying and computing. A profile compares kernels with these bounds.
#pragma once

#include "base/clock.h"
#include "base/status.h"

namespace xlad::runtime {

struct MachineRates {
  double bytes_per_s = 0;  // The bytes read and written by copies of 64 MiB.
  double flops_per_s = 0;  // The rate of the matrix library for 1024 x 1024 f32 matrices.
};

// Measures both rates on `threads` threads, in about half a second. Each result is the best of several runs.
absl::StatusOr<MachineRates> MeasureMachine(const Clock& clock, int threads);

}  // namespace xlad::runtime
