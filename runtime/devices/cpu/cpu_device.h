// The cpu device: this machine's memory and CPU, with native code and library ops.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "runtime/device_kind.h"
#include "runtime/devices/cpu/object_loader.h"

namespace xlad::runtime {

// All cpu devices share the machine. Work runs on the thread that enqueues it and on the threads of the stream's team
// (thread_team.h), and has finished when the call returns. The host can access memory of all kinds.
std::unique_ptr<Device> MakeCpuDevice();

// Loads native code, whatever device kind the executable's target names. Used by devices that run the code on this CPU
// but have their own memory. The launchers of the result need a stream of the cpu device and buffers that this process
// can access. `more` are functions that the code may call in addition to those that all programs may call.
absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadNativeCode(Executable executable,
                                                                 absl::Span<const ProvidedFunction> more = {});

DeviceKind CpuDeviceKind();

}  // namespace xlad::runtime
