// The kind cuda: NVIDIA GPUs.
#pragma once

#include <memory>

#include "runtime/device_kind.h"
#include "runtime/devices/cuda/driver.h"

namespace xlad::runtime {

// A device on GPU `ordinal` of the driver: its memory, kernels compiled by the driver, streams that run beside the
// host. Errors of the driver name the GPU. After a kernel has failed, the driver refuses all further work of this
// process.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const cuda::Driver* driver, int ordinal = 0);

// The kind is available if NVIDIA's driver and a GPU are found (driver.h); otherwise the reason says what is missing.
// All devices of a process are on its first GPU: CUDA_VISIBLE_DEVICES gives each worker its own.
DeviceKind CudaDeviceKind();

}  // namespace xlad::runtime
