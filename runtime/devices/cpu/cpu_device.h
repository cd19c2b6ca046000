// The cpu device: this machine's memory, native code, oneDNN.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "runtime/device_kind.h"
#include "runtime/devices/cpu/object_loader.h"

namespace xlad::runtime {

// All cpu devices share the machine. Work runs on the thread that enqueues it and on the threads of the stream's team
// (thread_team.h), and has finished when the call returns. The host can access both kinds of memory.
std::unique_ptr<Device> MakeCpuDevice();

// Loads native code, whatever device kind the executable's target names: for devices that run it on this CPU with
// memory of their own. Its launchers need a stream of the cpu device and buffers that this process can access.
// `more` are functions that the code may call besides those of every program.
absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadNativeCode(Executable executable,
                                                                 absl::Span<const ProvidedFunction> more = {});

DeviceKind CpuDeviceKind();

}  // namespace xlad::runtime
