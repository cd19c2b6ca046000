// The tpu_sim device: a simulated TPU that computes on this machine's CPU, with times from a performance model.
//
// Numbers: kernels are those of the cpu device. A product of f32 is computed as systolic arrays for bf16 compute it
// (systolic_products.h). As on the opaque device, the host cannot access the memory, and streams are asynchronous.
// Time: the compiler stores the time of each step in the executable (Executable.simulated), for chips that form a
// torus.
#pragma once

#include <memory>
#include <string>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// A model is a chip of deploy/chips (the default is v5e) or the path of a chip file (machine/chip.h). Such a path
// contains a slash or ends with ".toml": "my.toml", "/chips/v5".
DeviceKind TpuSimDeviceKind();

}  // namespace xlad::runtime
