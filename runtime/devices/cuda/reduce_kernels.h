// The module of reduce_kernels.c.
#pragma once

#include <memory>

#include "runtime/devices/cuda/cuda_module.h"

namespace xlad::runtime::cuda {

// Returns the module with the kernel xlad_reduce. All callers get the same module as long as one of them keeps it.
absl::StatusOr<std::shared_ptr<const CudaModule>> ReduceKernelsOf(const std::shared_ptr<const Gpu>& gpu);

}  // namespace xlad::runtime::cuda
