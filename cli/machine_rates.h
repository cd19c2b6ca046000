// How fast this machine moves and computes: the bounds against which a profile compares kernels.
#pragma once

#include "base/clock.h"
#include "base/status.h"

namespace xlad::cli {

struct MachineRates {
  double bytes_per_s = 0;  // Copies of arrays that are larger than the caches read and write these bytes.
  double flops_per_s = 0;  // The matrix library computes products of f32 matrices of 1024 x 1024.
};

// Measures both on `threads` threads; takes about half a second. The best of several runs counts.
absl::StatusOr<MachineRates> MeasureMachine(const Clock& clock, int threads);

}  // namespace xlad::cli
