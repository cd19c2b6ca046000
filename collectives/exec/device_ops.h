// The operations that a communicator needs on the device whose buffers a collective reads and writes.
//
// The implementation is a stream of the device (runtime/device.h): work that is enqueued here runs after all earlier
// work of that stream. If the host can access the device's memory, transports read and write the buffers directly.
// Otherwise collectives/exec/staged_communicator.h copies the buffers to host memory and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

// A second stream of a device. A library enqueues work on it through the device's own interface
// (collectives/exec/nccl). This work may run at the same time as work of the device's stream, unless WaitForDevice
// orders them. The destructor waits until the work has ended.
class SideStream {
 public:
  // A point in the work of the stream.
  class Mark {
   public:
    virtual ~Mark() = default;
    // Returns whether the work before the mark has ended, or the first error of this work. Does not block.
    virtual absl::StatusOr<bool> IsReached() const = 0;
  };

  virtual ~SideStream() = default;
  virtual void* handle() const = 0;            // The stream in the device's own interface: a CUstream.
  virtual const std::string& gpu() const = 0;  // The PCI address of the GPU, which is unique on the machine.
  // Makes the GPU current on the calling thread.
  virtual absl::Status Activate() = 0;
  // All later work on this stream runs after the work that is on the device's stream now.
  virtual absl::Status WaitForDevice() = 0;
  virtual absl::Status FillZero(void* to, int64_t bytes) = 0;
  // Returns device memory to which this stream copies the bytes. The caller must keep the memory until the work that
  // uses it has ended.
  virtual absl::StatusOr<std::shared_ptr<const std::byte>> CopyAside(const void* from, int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Mark>> Record() = 0;
};

// Threads: one at a time. Errors: see runtime::Stream.
class DeviceOps {
 public:
  virtual ~DeviceOps() = default;
  // True if the host may read and write the device's buffers by their addresses after Synchronize.
  virtual bool host_can_access() const = 0;
  // Copies to device memory. The caller may reuse `from` as soon as the call returns.
  virtual absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) = 0;
  // Copies to host memory. `to` must stay valid until Synchronize returns; before that, its contents are undefined.
  virtual absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) = 0;
  // Waits until all work enqueued before has finished. Returns the first error of this work.
  virtual absl::Status Synchronize() = 0;
  // Returns a new side stream, which must not outlive this object. Unimplemented if libraries cannot enqueue work on
  // the device.
  virtual absl::StatusOr<std::unique_ptr<SideStream>> MakeSideStream() {
    return absl::UnimplementedError("the device is not an NVIDIA GPU");
  }
};

}  // namespace xlad::collectives
