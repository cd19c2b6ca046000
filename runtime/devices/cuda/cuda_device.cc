#include "runtime/devices/cuda/cuda_device.h"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

absl::Status WhyNot() {
  constexpr char kDriver[] = "libcuda.so.1";
  void* const driver = dlopen(kDriver, RTLD_LAZY);
  if (driver != nullptr) dlclose(driver);
  return absl::UnavailableError(absl::StrCat(
      driver != nullptr ? absl::StrCat("NVIDIA's driver (", kDriver, ") is installed, but ")
                        : absl::StrCat("NVIDIA's driver (", kDriver, ") is not installed, and "),
      "this version of xlad does not launch kernels on GPUs; `xlad compile --target nvptx-sm_90 --emit ptx` prints "
      "their code, and --device gpu_sim runs it on the CPU"));
}

}  // namespace

DeviceKind CudaDeviceKind() {
  return {"cuda",
          "NVIDIA GPUs; not supported yet",
          {},
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          WhyNot,
          [](const std::string&) {
            Target target;
            target.set_triple("nvptx64-nvidia-cuda");
            target.set_device_kind("cuda");
            return target;
          },
          [](const std::string&) -> absl::StatusOr<std::unique_ptr<Device>> { return WhyNot(); }};
}

}  // namespace xlad::runtime
