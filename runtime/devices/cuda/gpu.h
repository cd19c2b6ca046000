// One GPU: its context, memory and errors.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/devices/cuda/driver.h"

namespace xlad::runtime::cuda {

// Holds the primary context of a GPU. Thread-safe.
class Gpu {
 public:
  // Unavailable if the driver finds no GPU with this ordinal, or if the GPU is older than sm_80, the oldest
  // architecture for which the compiler generates code.
  static absl::StatusOr<std::shared_ptr<const Gpu>> Open(const Driver* driver, int ordinal);
  ~Gpu();

  const Driver& driver() const { return driver_; }
  // The architecture to compile for, such as "sm_90": the newest that both the GPU and the compiler support.
  std::string code_target() const;
  // "GPU 0 (NVIDIA H100)", for messages.
  const std::string& name() const { return name_; }

  // "0000:3B:00.0": the address on the PCI bus, which differs between all GPUs of a machine.
  absl::StatusOr<std::string> PciAddress() const;

  // Makes this GPU current on the calling thread. Most functions of the driver work on the current GPU, so Activate is
  // called before them.
  absl::Status Activate() const;
  // OK, or an error that names the GPU and what failed: ResourceExhausted if there is not enough memory, otherwise
  // Internal.
  absl::Status Check(Result result, const std::string& what) const;

  // Returns ResourceExhausted, with the amount of free memory, if there is not enough memory or `bytes` is negative.
  absl::StatusOr<DevicePointer> Allocate(int64_t bytes) const;
  void Free(DevicePointer address) const;
  // Device memory that other processes can open by the handle. FreeShared keeps it for later calls of AllocateShared,
  // because the driver must not free memory that another process has opened. The driver frees it with the context.
  struct Shared {
    DevicePointer address = 0;
    int64_t bytes = 0;
    IpcHandle handle{};
  };
  absl::StatusOr<Shared> AllocateShared(int64_t bytes) const;
  void FreeShared(const Shared& shared) const;
  // Returns the address of shared memory of this or another process, which CloseShared gives up. Unimplemented for
  // memory that this process has allocated on another GPU.
  absl::StatusOr<DevicePointer> OpenShared(const IpcHandle& handle) const;
  void CloseShared(DevicePointer address) const;
  // Memory of the host. Returns ResourceExhausted if there is not enough, or `bytes` is negative.
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) const;
  void FreePinned(void* address) const;

 private:
  Gpu(const Driver& driver, DeviceId device, int ordinal) : driver_(driver), device_(device), ordinal_(ordinal) {}
  absl::Status Prepare();
  absl::Status KeepFreedMemory() const;
  absl::StatusOr<int> Attribute(int attribute) const;
  std::optional<Shared> TakeFreeShared(int64_t bytes) const;
  absl::Status OutOfMemory(int64_t bytes, const std::string& kind) const;

  const Driver& driver_;
  const DeviceId device_;
  const int ordinal_;
  std::string name_;
  int capability_ = 0;  // The compute capability; 90 for sm_90.
  bool has_pools_ = false;
  ContextHandle context_ = nullptr;
  StreamHandle stream_ = nullptr;  // The stream on which memory is allocated and freed.
  mutable std::mutex mutex_;
  mutable std::vector<Shared> free_shared_;
  // The addresses that the driver has opened, once for each call of OpenShared. The driver counts these calls.
  mutable std::multiset<DevicePointer> opened_;
};

}  // namespace xlad::runtime::cuda
