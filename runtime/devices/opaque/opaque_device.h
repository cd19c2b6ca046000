// The opaque device: a CPU device whose memory the host cannot access, so that tests find every place that accesses
// device memory directly.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// Runs the code of the cpu device, with bitwise equal results. Accesses through the addresses of its device memory
// fault (opaque_heap.h), and work runs asynchronously on another thread (opaque_stream.h).
absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice();
// Loads code that runs on this CPU. The code is called with real addresses that this process can access.
using NativeLoader = std::function<absl::StatusOr<std::unique_ptr<LoadedExecutable>>(Executable executable)>;
// The same device for another kind whose code runs on this CPU. `name` is the name of its devices. If `runs_schedules`
// is set, its streams reduce arrays in the device's memory (DeviceOps::Reduce).
absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice(const std::string& name, NativeLoader load,
                                                         bool runs_schedules = false);

DeviceKind OpaqueDeviceKind();

}  // namespace xlad::runtime
