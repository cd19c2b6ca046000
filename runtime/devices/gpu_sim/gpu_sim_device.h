// The gpu_sim device: code generated for GPUs, run on this machine's CPU.
#pragma once

#include "runtime/device_kind.h"

namespace xlad::runtime {

// The kernels of its executables are those for NVIDIA GPUs, with loops over the threads of a block
// (compiler/codegen/nvptx/host_threads.h). A tile is a block, and the threads of a stream compute blocks. As on a GPU,
// the host cannot access the device's memory, and work runs asynchronously. Library ops are computed as on the cpu
// device.
DeviceKind GpuSimDeviceKind();

// The same kind of device, but its code reports every memory access (access_checker.h) and is hundreds of times
// slower. A kernel with wrong accesses fails with an error that describes the first of them, for example the two
// threads of a race.
DeviceKind GpuSimCheckedDeviceKind();

}  // namespace xlad::runtime
