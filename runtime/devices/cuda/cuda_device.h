// The kind cuda: NVIDIA GPUs.
#pragma once

#include "runtime/device_kind.h"

namespace xlad::runtime {

// A row that is never available, so that `--device cuda` is answered with the reason: xlad generates code for these
// GPUs and simulates it (gpu_sim), but does not run it on them yet.
DeviceKind CudaDeviceKind();

}  // namespace xlad::runtime
