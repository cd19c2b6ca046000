#include "runtime/devices/cuda/gpu.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"
#include "runtime/index_text.h"

namespace xlad::runtime::cuda {
namespace {

constexpr int kOldestCapability = 80;
// The newest architecture for which xlad generates code with LLVM 19. Drivers can compile this code for newer GPUs.
constexpr int kNewestCapability = 90;

// The shared memory of this process, by handle. The driver opens only handles of other processes.
struct OwnShared {
  struct Block {
    DevicePointer address = 0;
    const Gpu* gpu = nullptr;
  };
  std::mutex mutex;
  std::map<std::string, Block> blocks;
};
OwnShared& AllOwnShared() {
  static auto* const all = new OwnShared();
  return *all;
}

std::string KeyOf(const IpcHandle& handle) { return {handle.bytes, sizeof handle.bytes}; }

}  // namespace

absl::StatusOr<std::shared_ptr<const Gpu>> Gpu::Open(const Driver* driver, int ordinal) {
  DeviceId device = 0;
  const Result found = driver->cuDeviceGet(&device, ordinal);
  if (found != kSuccess) {
    return absl::UnavailableError(absl::StrCat("found no GPU ", ordinal, ", expected ", IndexText(driver->device_count),
                                               ": ", driver->ErrorText(found)));
  }
  const std::shared_ptr<Gpu> gpu(new Gpu(*driver, device, ordinal));
  XLAD_RETURN_IF_ERROR(gpu->Prepare());
  return gpu;
}

absl::Status Gpu::Prepare() {
  std::array<char, 128> model = {};
  const Result named = driver_.cuDeviceGetName(model.data(), model.size() - 1, device_);
  name_ = absl::StrCat("GPU ", ordinal_, named == kSuccess ? absl::StrCat(" (", model.data(), ")") : "");
  XLAD_ASSIGN_OR_RETURN(const int major, Attribute(kComputeCapabilityMajor));
  XLAD_ASSIGN_OR_RETURN(const int minor, Attribute(kComputeCapabilityMinor));
  capability_ = 10 * major + minor;
  if (capability_ < kOldestCapability) {
    return absl::UnavailableError(absl::StrCat(name_, ": found compute capability ", major, ".", minor,
                                               ", expected 8.0 or later; --device gpu_sim runs the code on the CPU"));
  }
  XLAD_RETURN_IF_ERROR(Check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  XLAD_RETURN_IF_ERROR(Activate());
  XLAD_RETURN_IF_ERROR(Check(driver_.cuStreamCreate(&stream_, kStreamNonBlocking), "cuStreamCreate"));
  XLAD_ASSIGN_OR_RETURN(const int pools, Attribute(kMemoryPoolsSupported));
  has_pools_ = pools != 0;
  return has_pools_ ? KeepFreedMemory() : absl::OkStatus();
}

// Freed memory stays in the pool, so that allocating again takes microseconds.
absl::Status Gpu::KeepFreedMemory() const {
  PoolHandle pool = nullptr;
  XLAD_RETURN_IF_ERROR(Check(driver_.cuDeviceGetDefaultMemPool(&pool, device_), "cuDeviceGetDefaultMemPool"));
  uint64_t threshold = UINT64_MAX;
  return Check(driver_.cuMemPoolSetAttribute(pool, kPoolReleaseThreshold, &threshold), "cuMemPoolSetAttribute");
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(AllOwnShared().mutex);
    std::erase_if(AllOwnShared().blocks, [this](const auto& entry) { return entry.second.gpu == this; });
  }
  Activate().IgnoreError();
  if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

std::string Gpu::code_target() const { return absl::StrCat("sm_", std::min(capability_, kNewestCapability)); }

absl::StatusOr<int> Gpu::Attribute(int attribute) const {
  int value = 0;
  XLAD_RETURN_IF_ERROR(Check(driver_.cuDeviceGetAttribute(&value, attribute, device_),
                             absl::StrCat("cuDeviceGetAttribute of attribute ", attribute)));
  return value;
}

absl::StatusOr<std::string> Gpu::PciAddress() const {
  char address[32] = {};
  XLAD_RETURN_IF_ERROR(Check(driver_.cuDeviceGetPCIBusId(address, sizeof address, device_), "cuDeviceGetPCIBusId"));
  return std::string(address);
}

absl::Status Gpu::Activate() const { return Check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

absl::Status Gpu::Check(Result result, const std::string& what) const {
  if (result == kSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("cuda: ", name_, ": ", what, ": ", driver_.ErrorText(result));
  return result == kOutOfMemory ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

absl::Status Gpu::OutOfMemory(int64_t bytes, const std::string& kind) const {
  size_t free = 0, total = 0;
  const bool known = driver_.cuMemGetInfo_v2(&free, &total) == kSuccess;
  int64_t kept = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Shared& shared : free_shared_) kept += shared.bytes;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("cuda: cannot allocate ", bytes, " bytes of ", kind, " memory on ", name_,
                   known ? absl::StrCat(": ", free, " of its ", total, " bytes are free") : "",
                   kept > 0 ? absl::StrCat("; ", kept,
                                           " bytes of memory that earlier programs of this process shared "
                                           "with other processes are kept")
                            : "",
                   "; use more devices or a smaller batch, or stop other programs on this GPU"));
}

absl::StatusOr<DevicePointer> Gpu::Allocate(int64_t bytes) const {
  XLAD_RETURN_IF_ERROR(Activate());
  if (bytes < 0) return OutOfMemory(bytes, "device");
  DevicePointer address = 0;
  const size_t size = std::max<size_t>(1, bytes);  // Even empty allocations have addresses.
  const Result allocated =
      has_pools_ ? driver_.cuMemAllocAsync(&address, size, stream_) : driver_.cuMemAlloc_v2(&address, size);
  // For extremely large sizes, drivers return CUDA_ERROR_INVALID_VALUE instead of CUDA_ERROR_OUT_OF_MEMORY.
  if (allocated == kOutOfMemory || allocated == kInvalidValue) return OutOfMemory(bytes, "device");
  XLAD_RETURN_IF_ERROR(Check(allocated, absl::StrCat("allocation of ", bytes, " bytes")));
  if (has_pools_) XLAD_RETURN_IF_ERROR(Check(driver_.cuStreamSynchronize(stream_), "allocation"));
  return address;
}

void Gpu::Free(DevicePointer address) const {
  Activate().IgnoreError();  // After a failure of the GPU, the driver frees nothing until the process ends.
  has_pools_ ? driver_.cuMemFreeAsync(address, stream_) : driver_.cuMemFree_v2(address);
}

// Memory from pools has no IPC handles. A handle gives access to whole units of 2 MiB, so nothing else may be in them.
absl::StatusOr<Gpu::Shared> Gpu::AllocateShared(int64_t bytes) const {
  constexpr int64_t kUnit = 2 << 20;
  if (bytes < 0) return OutOfMemory(bytes, "device");
  XLAD_RETURN_IF_ERROR(Activate());
  if (const std::optional<Shared> kept = TakeFreeShared(bytes); kept.has_value()) return *kept;
  Shared shared;
  shared.bytes = std::max(kUnit, RoundUp(bytes, kUnit));
  const Result allocated = driver_.cuMemAlloc_v2(&shared.address, shared.bytes);
  if (allocated == kOutOfMemory || allocated == kInvalidValue) return OutOfMemory(bytes, "device");
  XLAD_RETURN_IF_ERROR(Check(allocated, absl::StrCat("allocation of ", bytes, " bytes")));
  const absl::Status exported = Check(driver_.cuIpcGetMemHandle(&shared.handle, shared.address), "cuIpcGetMemHandle");
  if (!exported.ok()) {
    driver_.cuMemFree_v2(shared.address);
    return exported;
  }
  const std::lock_guard<std::mutex> lock(AllOwnShared().mutex);
  AllOwnShared().blocks[KeyOf(shared.handle)] = {shared.address, this};
  return shared;
}

// Returns the smallest block that is large enough, so that large memory is left for others.
std::optional<Gpu::Shared> Gpu::TakeFreeShared(int64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto best = free_shared_.end();
  for (auto at = free_shared_.begin(); at != free_shared_.end(); ++at) {
    if (at->bytes >= bytes && (best == free_shared_.end() || at->bytes < best->bytes)) best = at;
  }
  if (best == free_shared_.end()) return std::nullopt;
  const Shared taken = *best;
  free_shared_.erase(best);
  return taken;
}

void Gpu::FreeShared(const Shared& shared) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_shared_.push_back(shared);
}

absl::StatusOr<DevicePointer> Gpu::OpenShared(const IpcHandle& handle) const {
  XLAD_RETURN_IF_ERROR(Activate());
  {
    const std::lock_guard<std::mutex> lock(AllOwnShared().mutex);
    const auto own = AllOwnShared().blocks.find(KeyOf(handle));
    if (own != AllOwnShared().blocks.end()) {
      const Gpu& owner = *own->second.gpu;
      if (owner.device_ == device_) return own->second.address;
      return absl::UnimplementedError(absl::StrCat("cuda: ", name_, " cannot access the memory of ", owner.name_,
                                                   ", which the same process has allocated; use one GPU per process"));
    }
  }
  DevicePointer address = 0;
  XLAD_RETURN_IF_ERROR(
      Check(driver_.cuIpcOpenMemHandle_v2(&address, handle, kIpcLazyPeerAccess), "cuIpcOpenMemHandle"));
  const std::lock_guard<std::mutex> lock(mutex_);
  opened_.insert(address);
  return address;
}

void Gpu::CloseShared(DevicePointer address) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto opened = opened_.find(address);
    if (opened == opened_.end()) return;  // The memory is of this process.
    opened_.erase(opened);
  }
  Activate().IgnoreError();
  driver_.cuIpcCloseMemHandle(address);
}

absl::StatusOr<void*> Gpu::AllocatePinned(int64_t bytes) const {
  XLAD_RETURN_IF_ERROR(Activate());
  if (bytes < 0) return OutOfMemory(bytes, "pinned host");
  void* address = nullptr;
  const Result allocated = driver_.cuMemHostAlloc(&address, std::max<size_t>(1, bytes), kHostAllocPortable);
  if (allocated == kOutOfMemory || allocated == kInvalidValue) return OutOfMemory(bytes, "pinned host");
  XLAD_RETURN_IF_ERROR(Check(allocated, absl::StrCat("allocation of ", bytes, " bytes of pinned memory")));
  return address;
}

void Gpu::FreePinned(void* address) const {
  Activate().IgnoreError();
  driver_.cuMemFreeHost(address);
}

}  // namespace xlad::runtime::cuda
