#include "runtime/devices/cuda/cuda_device.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "runtime/devices/cuda/cuda_executable.h"
#include "runtime/devices/cuda/cuda_stream.h"

namespace xlad::runtime {
namespace {

using cuda::Gpu;

constexpr char kName[] = "cuda";

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(std::shared_ptr<const Gpu> gpu, cuda::DevicePointer address, int64_t bytes)
      : gpu_(std::move(gpu)), address_(address), bytes_(bytes) {}
  ~CudaMemory() override { gpu_->Free(address_); }
  void* address() const override { return reinterpret_cast<void*>(address_); }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  const cuda::DevicePointer address_;
  const int64_t bytes_;
};

class PinnedMemory final : public DeviceMemory {
 public:
  PinnedMemory(std::shared_ptr<const Gpu> gpu, void* address, int64_t bytes)
      : gpu_(std::move(gpu)), address_(address), bytes_(bytes) {}
  ~PinnedMemory() override { gpu_->FreePinned(address_); }
  void* address() const override { return address_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  void* const address_;
  const int64_t bytes_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<const Gpu> gpu, std::shared_ptr<const cuda::CublasLtContext> products)
      : gpu_(std::move(gpu)), products_(std::move(products)) {}
  std::string Name() const override { return kName; }
  bool uses_host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind) override {
    if (kind == MEMORY_PINNED_HOST) {
      XLAD_ASSIGN_OR_RETURN(void* const address, gpu_->AllocatePinned(bytes));
      return std::make_unique<PinnedMemory>(gpu_, address, bytes);
    }
    if (kind != MEMORY_DEVICE) {
      return absl::InvalidArgumentError(
          absl::StrCat("cuda: found memory kind ", kind, ", expected device or pinned_host"));
    }
    XLAD_ASSIGN_OR_RETURN(const cuda::DevicePointer address, gpu_->Allocate(bytes));
    return std::make_unique<CudaMemory>(gpu_, address, bytes);
  }
  using Device::MakeStream;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int threads) override {
    return cuda::CudaStream::Make(gpu_, threads);
  }
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) override {
    XLAD_RETURN_IF_ERROR(CheckTarget(executable, kName));
    return cuda::LoadPtx(gpu_, products_, std::move(executable));
  }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  const std::shared_ptr<const cuda::CublasLtContext> products_;  // Null if cuBLASLt is not used.
};

void LogOwnKernels(const absl::Status& why) {
  LogWarn("cuda: xlad's own kernels compute matrix products", {{"reason", std::string(why.message())}});
}

absl::StatusOr<std::shared_ptr<const Gpu>> FirstGpu() {
  XLAD_ASSIGN_OR_RETURN(const cuda::Driver* const driver, cuda::TheDriver());
  return Gpu::Open(driver, 0);
}

// Opens the GPU once per process, because creating a context takes a large fraction of a second.
const absl::StatusOr<std::string>& CodeTarget() {
  static const auto* const target = [] {
    const auto gpu = FirstGpu();
    return new absl::StatusOr<std::string>(gpu.ok() ? absl::StatusOr<std::string>((*gpu)->code_target())
                                                    : gpu.status());
  }();
  return *target;
}

Target TargetOf(const std::string&) {
  Target target;
  target.set_triple("nvptx64-nvidia-cuda");
  if (CodeTarget().ok()) target.set_cpu(*CodeTarget());
  target.set_device_kind(kName);
  target.set_has_dots_of_f64_and_s8(true);
  return target;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const cuda::Driver* driver, int ordinal,
                                                       const cuda::CublasLt* products) {
  XLAD_ASSIGN_OR_RETURN(std::shared_ptr<const Gpu> gpu, Gpu::Open(driver, ordinal));
  std::shared_ptr<const cuda::CublasLtContext> context;
  if (products != nullptr) {
    absl::StatusOr<std::shared_ptr<const cuda::CublasLtContext>> made = cuda::CublasLtContext::Make(gpu, products);
    if (made.ok()) context = *std::move(made);
    else LogOwnKernels(made.status());
  }
  return std::make_unique<CudaDevice>(std::move(gpu), std::move(context));
}

DeviceKind CudaDeviceKind() {
  return {kName,
          "NVIDIA GPUs",
          {},
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          [] { return CodeTarget().status(); },
          TargetOf,
          [](const std::string&) -> absl::StatusOr<std::unique_ptr<Device>> {
            XLAD_ASSIGN_OR_RETURN(const cuda::Driver* const driver, cuda::TheDriver());
            const absl::StatusOr<const cuda::CublasLt*> products = cuda::TheCublasLt(*driver);
            if (!products.ok()) LogOwnKernels(products.status());
            if (!driver->no_graphs.empty()) {
              LogWarn("cuda: kernels are launched one by one, without graphs", {{"reason", driver->no_graphs}});
            }
            return MakeCudaDevice(driver, 0, products.ok() ? *products : nullptr);
          },
          nullptr,
          [] {
            const absl::StatusOr<const cuda::CublasLt*> products = cuda::TheCublasLt(**cuda::TheDriver());
            return products.ok() ? absl::StrCat("matrix products by ", (*products)->Name())
                                 : absl::StrCat("matrix products by xlad's own kernels: ", products.status().message());
          }};
}

}  // namespace xlad::runtime
