// The gpu_sim device: code generated for GPUs, run on this machine's CPU.
#pragma once

#include "runtime/device_kind.h"

namespace xlad::runtime {

// The kernels of its executables are those for NVIDIA GPUs, with loops over the threads of a block
// (compiler/codegen/nvptx/host_threads.h). A tile is a block, and the threads of a stream compute blocks. As on a GPU,
// the host cannot access its memory, and work runs later than it is enqueued. Library ops stand for those of a GPU's
// libraries and are computed by the cpu device's.
DeviceKind GpuSimDeviceKind();

// The same with code that reports every access of memory (access_checker.h), some hundred times slower: a kernel in
// which two threads race fails with an error that names them.
DeviceKind GpuSimCheckedDeviceKind();

}  // namespace xlad::runtime
