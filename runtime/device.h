// A device: memory, streams of work, and executables loaded to run on it.
//
// Addresses of device memory are handles. Outside of the device's own folder they are dereferenced only if
// Stream::host_can_access is true or the memory is pinned host memory. All other code copies, fills and reads device
// memory through a Stream. The host may add byte offsets to an address and compare addresses.
//
// A Stream is a queue whose work runs in the order in which it was enqueued. Work on different streams is not ordered
// unless an Event orders it. The cpu device finishes work before the call that enqueues it returns. Other devices, such
// as the opaque device, may finish it at any later time. Callers must be correct in both cases. In this example, the
// host reads what a kernel computed:
//
//   auto stream = *device->MakeStream();
//   auto memory = *device->Allocate(4);
//   auto launcher = *loaded->MakeLauncher(/*partition_id=*/0, stream.get());
//   void* const address = memory->address();
//   XLAD_RETURN_IF_ERROR(stream->CopyToDevice(address, input));            // `input` may be reused at once.
//   XLAD_RETURN_IF_ERROR(launcher->RunKernel(kernel, {&address, 1}, nullptr, /*tiles=*/1));
//   XLAD_RETURN_IF_ERROR(stream->CopyToHost(absl::MakeSpan(output), address));
//   XLAD_RETURN_IF_ERROR(stream->Synchronize());                           // Now `output` has its contents.
//
// Threads: a Device and a LoadedExecutable may be used by any number of threads at once. A Stream and its Launchers are
// used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/device_ops.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// An allocation of a device, freed on destruction. It must outlive the work that uses it: synchronize the stream first.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // The address is aligned to XLAD_BUFFER_ALIGNMENT, never null, and different from that of every other allocation. The
  // host may dereference it only if the memory is of kind MEMORY_PINNED_HOST or Stream::host_can_access is true.
  virtual void* address() const = 0;
  virtual int64_t bytes() const = 0;  // The size that was requested; may be 0.
};

using collectives::Event;

// Destroying a stream waits for its work. All ranges are in bytes and must lie in memory of this device; ranges of
// 0 bytes are allowed with any address.
//
// Errors: a call returns InvalidArgument at once for arguments that can be checked at once. The error of enqueued work
// is returned by the call that enqueues it or by a later call on the stream, at the latest by Synchronize. Work that
// was enqueued after the failed work may not run, and the contents of the memory that it writes are undefined.
// Synchronize keeps returning the error.
class Stream : public collectives::DeviceOps {};

// Returns InvalidArgument if a copy or a fill has a negative number of bytes. `kind` is that of the device.
inline absl::Status CheckBytes(absl::string_view kind, int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kind, ": found a range of ", bytes, " bytes, expected 0 or more"));
}

// Consecutive steps whose results the host does not read before all of them are enqueued: kernels, library ops and
// copies for which LoadedExecutable::CanGroup is true.
struct StepGroup {
  int number = 0;        // Groups of an executable with the same number consist of the same steps.
  int64_t launches = 0;  // The number of kernels and library ops.
  // The addresses of the allocations and of the scratch memory. All buffers of the steps have constant offsets in them.
  absl::Span<std::byte* const> allocations;
  void* scratch = nullptr;
};

// Enqueues the kernels and library ops of an executable for one logical shard, on one stream. Buffers are addresses of
// the device in the order of the step's argument list, with the sizes and alignment that the executable states.
//
// A launcher may enqueue a group of steps that it knows from earlier with one call (CUDA graphs). The caller does:
//
//   XLAD_ASSIGN_OR_RETURN(bool is_enqueued, launcher->BeginGroup(group));
//   if (is_enqueued) return absl::OkStatus();
//   absl::Status status = EnqueueAll();                                   // By RunKernel, RunLibraryOp, Stream::Copy.
//   XLAD_ASSIGN_OR_RETURN(is_enqueued, launcher->EndGroup(status));
//   return is_enqueued ? status : EnqueueAll();
class Launcher {
 public:
  virtual ~Launcher() = default;
  // Returns true if the steps have been enqueued. If not, EndGroup must be called after the steps.
  virtual absl::StatusOr<bool> BeginGroup(const StepGroup&) { return false; }
  // `enqueued` is the first error of the steps. Returns false if no step has been enqueued, so that the caller must
  // enqueue them again.
  virtual absl::StatusOr<bool> EndGroup(const absl::Status& /*enqueued*/) { return true; }
  // Runs all `tiles` (KernelStep.tiles, at least 1) of a kernel, whose number is from LoadedExecutable::FindKernel.
  // `scratch` has KernelStep.scratch_bytes bytes, or is null if that is 0.
  virtual absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) = 0;
  // `op` indexes Executable.library_ops; buffers are the operands, then the results.
  virtual absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) = 0;
};

class LoadedExecutable {
 public:
  virtual ~LoadedExecutable() = default;
  virtual const Executable& executable() const = 0;
  // Whether a StepGroup may contain the step: the device executes it without work of the host.
  virtual bool CanGroup(const Step&) const { return false; }
  // Returns the number of the kernel with this symbol, or NotFound if the object code has no such symbol.
  virtual absl::StatusOr<int> FindKernel(absl::string_view symbol) const = 0;
  // `partition_id` is the value of the program's partition-id. `stream` must be of the same device. The launcher must
  // not outlive this object or `stream`.
  virtual absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id, Stream* stream) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // "KIND" or "KIND:MODEL". The same as DeviceName (proto/device_name.h) of the target of its executables.
  virtual std::string Name() const = 0;
  // Whether MEMORY_DEVICE is memory of this machine, which its processes share.
  virtual bool uses_host_memory() const { return true; }
  // ResourceExhausted if there is not enough memory or `bytes` is negative, InvalidArgument if the device does not have
  // the kind of memory. The contents are undefined.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind) = 0;
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) { return Allocate(bytes, MEMORY_DEVICE); }
  // `threads` (at least 1) is the number of this machine's cores that the stream's work may keep busy at a time.
  // Devices that do not compute on these cores ignore it. Results do not depend on `threads`.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int threads) = 0;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream() { return MakeStream(1); }
  // InvalidArgument if the executable is for another kind of device or is not consistent: damaged object code, a symbol
  // that is not provided, or a library op whose shapes do not match.
  virtual absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) = 0;
};

}  // namespace xlad::runtime
