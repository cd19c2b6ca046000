#include "runtime/devices/cuda/cuda_module.h"

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace xlad::runtime::cuda {

absl::StatusOr<std::unique_ptr<CudaModule>> CudaModule::Load(std::shared_ptr<const Gpu> gpu, const std::string& ptx,
                                                             const std::string& name) {
  XLAD_RETURN_IF_ERROR(gpu->Activate());
  std::array<char, 8192> log = {};
  std::array<int, 2> options = {kJitErrorLogBuffer, kJitErrorLogBufferBytes};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(uintptr_t{log.size() - 1})};
  ModuleHandle module = nullptr;
  const Result loaded =
      gpu->driver().cuModuleLoadDataEx(&module, ptx.c_str(), options.size(), options.data(), values.data());
  if (loaded == kSuccess) return std::unique_ptr<CudaModule>(new CudaModule(std::move(gpu), name, module));
  if (loaded == kOutOfMemory) return gpu->Check(loaded, absl::StrCat("loading the code of '", name, "'"));
  const std::string text = log.data();
  return absl::InvalidArgumentError(absl::StrCat(
      "cuda: ", gpu->name(), ": the driver cannot load the PTX of '", name, "': ", gpu->driver().ErrorText(loaded),
      loaded == kUnsupportedPtxVersion ? "; install a later version of NVIDIA's driver" : "",
      text.empty() ? "" : absl::StrCat("; the log of the driver: ", text)));
}

CudaModule::~CudaModule() {
  gpu_->Activate().IgnoreError();
  gpu_->driver().cuModuleUnload(module_);
}

absl::StatusOr<FunctionHandle> CudaModule::Find(const std::string& kernel) const {
  XLAD_RETURN_IF_ERROR(gpu_->Activate());
  FunctionHandle function = nullptr;
  const Result found = gpu_->driver().cuModuleGetFunction(&function, module_, kernel.c_str());
  if (found == cuda::kNotFound) {
    return absl::NotFoundError(absl::StrCat("cuda: ", gpu_->name(), ": the code of '", name_, "' has no kernel '",
                                            kernel, "'"));
  }
  XLAD_RETURN_IF_ERROR(gpu_->Check(found, absl::StrCat("kernel '", kernel, "' of '", name_, "'")));
  return function;
}

}  // namespace xlad::runtime::cuda
