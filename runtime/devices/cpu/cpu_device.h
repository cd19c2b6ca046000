// The cpu device: this machine's memory, native code, oneDNN.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace xlad::runtime {

// Every call is a device of its own; all share the machine. Kernels run on the thread that calls.
std::unique_ptr<Device> MakeCpuDevice();

}  // namespace xlad::runtime
