#include "runtime/devices/registry/registry.h"

#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cuda/cuda_device.h"
#include "runtime/devices/gpu_sim/gpu_sim_device.h"
#include "runtime/devices/opaque/opaque_device.h"
#include "runtime/devices/tpu_sim/tpu_sim_device.h"

namespace xlad::runtime {

DeviceKinds AllDeviceKinds() {
  static const auto* const kinds = new std::vector<DeviceKind>{
      CpuDeviceKind(),
      OpaqueDeviceKind(),
      GpuSimDeviceKind(),
      GpuSimCheckedDeviceKind(),
      CudaDeviceKind(),
      TpuSimDeviceKind(),
  };
  return *kinds;
}

}  // namespace xlad::runtime
