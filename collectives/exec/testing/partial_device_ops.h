// The base of devices in tests.
#pragma once

#include <memory>

#include "collectives/exec/device_ops.h"

namespace xlad::collectives {

// A device whose operations return Unimplemented. Tests override those that they use.
class PartialDeviceOps : public DeviceOps {
 public:
  absl::Status CopyToDevice(void*, absl::Span<const std::byte>) override { return NotUsed("CopyToDevice"); }
  absl::Status CopyToHost(absl::Span<std::byte>, const void*) override { return NotUsed("CopyToHost"); }
  absl::Status Copy(void*, const void*, int64_t) override { return NotUsed("Copy"); }
  absl::Status FillZero(void*, int64_t) override { return NotUsed("FillZero"); }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return NotUsed("Record"); }
  absl::Status WaitFor(const Event&) override { return NotUsed("WaitFor"); }

 private:
  static absl::Status NotUsed(const char* operation) { return absl::UnimplementedError(operation); }
};

}  // namespace xlad::collectives
