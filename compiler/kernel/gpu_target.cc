#include "compiler/kernel/gpu_target.h"

#include "absl/strings/match.h"

namespace xlad::compiler {

bool IsSimulatedGpu(const Target& target) {
  return target.device_kind() == kGpuSim || target.device_kind() == kGpuSimChecked;
}

bool IsGpu(const Target& target) {
  return IsSimulatedGpu(target) || absl::StartsWith(target.triple(), "nvptx");
}

}  // namespace xlad::compiler
