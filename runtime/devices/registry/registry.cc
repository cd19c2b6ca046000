#include "runtime/devices/registry/registry.h"

#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/opaque/opaque_device.h"

namespace xlad::runtime {

DeviceKinds AllDeviceKinds() {
  static const auto* const kinds = new std::vector<DeviceKind>{
      CpuDeviceKind(),
      OpaqueDeviceKind(),
  };
  return *kinds;
}

}  // namespace xlad::runtime
