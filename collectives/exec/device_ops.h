// The operations that a communicator needs on the device whose buffers a collective reads and writes.
//
// The implementation is a stream of the device (runtime/device.h): work that is enqueued here happens after all work
// enqueued on that stream before. A device whose memory the host can access passes its buffers to transports directly;
// for any other device collectives/exec/staged_communicator.h copies them to host memory and back.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

// Threads: one at a time. Errors: see runtime::Stream.
class DeviceOps {
 public:
  virtual ~DeviceOps() = default;
  // True if the host may read and write the device's buffers by their addresses after Synchronize.
  virtual bool host_can_access() const = 0;
  // Copies to device memory. The caller may reuse `from` as soon as the call returns.
  virtual absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) = 0;
  // Copies to host memory. `to` must stay valid until Synchronize returns, and has its contents only then.
  virtual absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) = 0;
  // Waits until all work enqueued before has finished. Returns the first error of this work.
  virtual absl::Status Synchronize() = 0;
};

}  // namespace xlad::collectives
