// The tpu_sim device: a TPU that computes on this machine's CPU, and whose time is that of a model.
//
// Numbers: kernels are those of the cpu device. A product of f32 is computed as systolic arrays for bf16 compute it
// (systolic_products.h). Memory cannot be accessed by the host, and streams are asynchronous, as those of the opaque
// device. Time: the build states it for each step of an executable (Executable.simulated), for chips that form a torus.
#pragma once

#include <memory>
#include <string>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// Models are the chips of deploy/chips, of which v5e is the default, and paths of chip files (machine/chip.h), which
// have the form of a path: "./my.toml", "/chips/my.toml".
DeviceKind TpuSimDeviceKind();

}  // namespace xlad::runtime
