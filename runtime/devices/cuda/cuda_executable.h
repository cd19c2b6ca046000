// Executables loaded on a GPU.
#pragma once

#include <memory>

#include "runtime/device.h"
#include "runtime/devices/cuda/cublaslt.h"
#include "runtime/devices/cuda/gpu.h"

namespace xlad::runtime::cuda {

// Loads an executable, whose PTX the driver compiles. A tile of a kernel is a block of threads. `products` is null if
// cuBLASLt is not used.
absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadPtx(std::shared_ptr<const Gpu> gpu,
                                                          std::shared_ptr<const CublasLtContext> products,
                                                          Executable executable);

}  // namespace xlad::runtime::cuda
