#include "runtime/devices/cpu/host_target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <set>
#include <string>

#include "absl/strings/str_join.h"

namespace xlad::runtime {

Target HostTarget(const std::string& device_kind) {
  std::set<std::string> features;  // Sorted, so that the text does not depend on the order of LLVM's map.
  const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  for (const auto& feature : host) features.insert((feature.second ? "+" : "-") + feature.first().str());
  Target target;
  target.set_triple(llvm::sys::getProcessTriple());
  target.set_cpu(llvm::sys::getHostCPUName().str());
  target.set_features(absl::StrJoin(features, ","));
  target.set_device_kind(device_kind);
  return target;
}

}  // namespace xlad::runtime
