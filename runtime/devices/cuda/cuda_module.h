// A module of kernels, compiled from PTX, on a GPU.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/devices/cuda/gpu.h"

namespace xlad::runtime::cuda {

// Unloaded on destruction. Thread-safe.
class CudaModule {
 public:
  // The driver compiles the PTX for the GPU. Returns InvalidArgument with the driver's log if the driver rejects the
  // text.
  static absl::StatusOr<std::unique_ptr<CudaModule>> Load(std::shared_ptr<const Gpu> gpu, const std::string& ptx,
                                                          const std::string& name);
  ~CudaModule();
  absl::StatusOr<FunctionHandle> Find(const std::string& kernel) const;

 private:
  CudaModule(std::shared_ptr<const Gpu> gpu, ModuleHandle module) : gpu_(std::move(gpu)), module_(module) {}
  const std::shared_ptr<const Gpu> gpu_;
  const ModuleHandle module_;
};

}  // namespace xlad::runtime::cuda
