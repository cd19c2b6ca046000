// One GPU: its context, memory and errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/devices/cuda/driver.h"

namespace xlad::runtime::cuda {

// Holds the primary context of a GPU. Thread-safe.
class Gpu {
 public:
  // Unavailable if the GPU is older than sm_80, for which the compiler generates code.
  static absl::StatusOr<std::shared_ptr<const Gpu>> Open(const Driver* driver, int ordinal);
  ~Gpu();

  const Driver& driver() const { return driver_; }
  // "sm_90": the newest code that the GPU runs and the compiler generates.
  std::string code_target() const;
  // "GPU 0 (NVIDIA H100)", for messages.
  const std::string& name() const { return name_; }

  // The driver works on the GPU that is current on the calling thread. Every function that calls the driver begins
  // with this.
  absl::Status Activate() const;
  // OK, or an error that names the GPU and what failed: ResourceExhausted if memory is missing, else Internal.
  absl::Status Check(Result result, const std::string& what) const;

  // ResourceExhausted says how much memory is free.
  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) const;
  void Free(DevicePointer address) const;
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) const;
  void FreePinned(void* address) const;

 private:
  Gpu(const Driver& driver, DeviceId device, int ordinal) : driver_(driver), device_(device), ordinal_(ordinal) {}
  absl::Status Prepare();
  absl::Status KeepFreedMemory() const;
  absl::StatusOr<int> Attribute(int attribute) const;
  absl::Status OutOfMemory(int64_t bytes, const std::string& kind) const;

  const Driver& driver_;
  const DeviceId device_;
  const int ordinal_;
  std::string name_;
  int capability_ = 0;  // 90 for sm_90.
  bool has_pools_ = false;
  ContextHandle context_ = nullptr;
  StreamHandle stream_ = nullptr;  // Orders allocations and frees.
};

}  // namespace xlad::runtime::cuda
