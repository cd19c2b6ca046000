// The kind cuda: NVIDIA GPUs.
#pragma once

#include <memory>

#include "runtime/device_kind.h"
#include "runtime/devices/cuda/cublaslt.h"
#include "runtime/devices/cuda/driver.h"

namespace xlad::runtime {

// Makes a device on GPU `ordinal` of the driver. The driver compiles its kernels, and its streams run asynchronously to
// the host. Errors of the driver name the GPU. After a kernel has failed, the driver rejects all further work of this
// process. `products` computes matrix products. If `products` is null or does not work on this GPU, xlad's own kernels
// compute them. In the second case, the log has a warning with the reason.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const cuda::Driver* driver, int ordinal = 0,
                                                       const cuda::CublasLt* products = nullptr);

// The kind is available if NVIDIA's driver and a GPU are found (driver.h); otherwise `available` says what is missing.
// All devices of a process are on its first GPU, so CUDA_VISIBLE_DEVICES must select a different GPU for each worker.
DeviceKind CudaDeviceKind();

}  // namespace xlad::runtime
