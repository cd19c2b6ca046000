// A device: memory, and executables loaded to run on it.
//
// A Device and a LoadedExecutable may be used by any number of threads at once. A Launcher belongs to one logical
// shard and is used by one thread at a time; several launchers of one LoadedExecutable run side by side.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// Memory of a device, given back when destroyed.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* address() const = 0;  // Aligned to XLAD_BUFFER_ALIGNMENT; an address of the device.
  virtual int64_t bytes() const = 0;
};

// Runs the parts of an executable's steps for one logical shard. Buffers are device addresses, in the order of the
// step's argument list; they need the sizes and alignment that the executable states. Every call has finished when
// it returns.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // `kernel` is from LoadedExecutable::FindKernel; `scratch` has KernelStep.scratch_bytes (null where that is 0).
  virtual absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch) = 0;
  // `op` indexes Executable.library_ops: operands, then results.
  virtual absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) = 0;
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;
};

class LoadedExecutable {
 public:
  virtual ~LoadedExecutable() = default;
  virtual const Executable& executable() const = 0;
  // The number of a kernel by its symbol. NotFound where the object code has no such symbol.
  virtual absl::StatusOr<int> FindKernel(absl::string_view symbol) const = 0;
  // `partition_id` is what partition-id gives. The launcher must not outlive this.
  virtual absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string Name() const = 0;  // "cpu"
  // ResourceExhausted where there is not enough. 0 bytes are fine. Contents are undefined.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) = 0;
  virtual absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) = 0;
  virtual absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) = 0;
  // InvalidArgument where the executable is not for this device or does not hold together (bad object code, a
  // symbol that is not provided, a library op that does not fit).
  virtual absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) = 0;
};

}  // namespace xlad::runtime
