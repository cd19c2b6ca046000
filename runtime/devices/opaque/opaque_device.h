// The opaque device: a CPU device whose memory the host cannot access, so that tests find every place that tries to.
#pragma once

#include <memory>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// Runs the code of the cpu device, with the same bits, on memory behind addresses that fault (opaque_heap.h), later and
// on another thread than the caller's (opaque_stream.h).
absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice();

DeviceKind OpaqueDeviceKind();

}  // namespace xlad::runtime
