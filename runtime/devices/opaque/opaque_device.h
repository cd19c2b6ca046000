// The opaque device: a CPU device whose memory the host cannot access, so that tests find every place that tries to.
#pragma once

#include <memory>
#include <string>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// Runs the code of the cpu device, with the same bits, on memory behind addresses that fault (opaque_heap.h), later and
// on another thread than the caller's (opaque_stream.h).
absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice();
// The same for another kind whose code runs on this CPU (gpu_sim). `name` is the name of its devices, and `load` loads
// code that is called with addresses which this process can access.
using NativeLoader = absl::StatusOr<std::unique_ptr<LoadedExecutable>> (*)(Executable executable);
absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice(const std::string& name, NativeLoader load);

DeviceKind OpaqueDeviceKind();

}  // namespace xlad::runtime
