// The operations that a communicator needs on the device whose buffers a collective reads and writes.
//
// The implementation is a stream of the device (runtime/device.h): work that is enqueued here runs after all earlier
// work of that stream. If the host can access the device's memory, transports read and write the buffers directly.
// Otherwise collectives run in device memory (collectives/exec/device) or on copies in host memory
// (collectives/exec/staged_communicator.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/spec.h"

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

// A point in the work of a stream. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool IsDone() const = 0;
  // Blocks the calling thread until the work before the event has finished. Returns the first error of that work.
  virtual absl::Status Wait() const = 0;
};

// An element-wise reduction of arrays by a device. The results have the same bits as those of FindReduceFunction or, if
// `as_tree` is set, FindTreeReduceFunction (collectives/exec/reduce.h), except for the bits of NaNs.
struct DeviceReduction {
  static constexpr size_t kMaxSources = 16;
  tensor::ElementType type = tensor::ElementType::kF32;
  Reduction reduction = Reduction::kSum;
  bool as_tree = false;
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
  // Copies bytes within the device. The two ranges may be in different kinds of memory, and may overlap.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status FillZero(void* to, int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> Record() = 0;
  // Work that is enqueued on this stream later will run after the event, and fails if the work before the event has
  // failed. The event must be from a stream of the same device kind.
  virtual absl::Status WaitFor(const Event& event) = 0;

  // The name of the memory of the stream's device. Streams of this process with the same name can access each other's
  // buffers by Copy and Reduce. Empty if the stream has no kernels that reduce arrays; the functions below then
  // return Unimplemented.
  virtual std::string memory_name() const { return ""; }
  // Device memory with undefined contents, which is freed with the last reference. It must outlive the work that uses
  // it.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> AllocateDevice(int64_t /*bytes*/) { return NoSchedules(); }
  // Whether Reduce can run the reduction.
  virtual bool CanReduce(const DeviceReduction& /*reduction*/) const { return false; }
  // Reduces `count` elements of 1 to kMaxSources arrays. `to` may be equal to a source but must not overlap one
  // partially.
  virtual absl::Status Reduce(const DeviceReduction& /*reduction*/, void* /*to*/,
                              absl::Span<const void* const> /*sources*/, int64_t /*count*/) {
    return NoSchedules();
  }

  // The name of the memory that the device can share with other processes. Devices with the same name are of one kind
  // and on one machine, so that they can probably open each other's shared memory. Empty if the device cannot share
  // memory; the functions below then return Unimplemented.
  virtual std::string shared_memory_name() const { return ""; }
  // Device memory that other processes can open, with undefined contents.
  struct SharedMemory {
    std::shared_ptr<std::byte> address;  // Freed with the last reference. It must outlive the work that uses it.
    std::string handle;                  // A text without line breaks, for OpenShared.
  };
  virtual absl::StatusOr<SharedMemory> AllocateShared(int64_t /*bytes*/) { return NoSharedMemory(); }
  // Returns the address of the shared memory of another device, which this stream can access until the last reference
  // is dropped. The other device must keep the memory as long, unless its process ends; the memory then stays
  // accessible. For CUDA, this is assumed and has not been verified on hardware (decision 81).
  virtual absl::StatusOr<std::shared_ptr<std::byte>> OpenShared(const std::string& /*handle*/) {
    return NoSharedMemory();
  }

  // Returns a new side stream, which must not outlive this object. Unimplemented if libraries cannot enqueue work on
  // the device.
  virtual absl::StatusOr<std::unique_ptr<SideStream>> MakeSideStream() {
    return absl::UnimplementedError("the device is not an NVIDIA GPU");
  }

 private:
  static absl::Status NoSchedules() {
    return absl::UnimplementedError("the device has no kernels that reduce arrays");
  }
  static absl::Status NoSharedMemory() {
    return absl::UnimplementedError("the device cannot share memory with other processes");
  }
};

}  // namespace xlad::collectives
