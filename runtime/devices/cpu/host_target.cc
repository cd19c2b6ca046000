// What code for this machine's CPU must be compiled for.
#include "runtime/devices/cpu/host_target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <set>
#include <string>

#include "absl/strings/str_join.h"

namespace xlad::runtime {

Target HostTarget() {
  std::set<std::string> features;  // Sorted: equal machines have equal targets.
  const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  for (const auto& feature : host) features.insert((feature.second ? "+" : "-") + feature.first().str());
  Target target;
  target.set_triple(llvm::sys::getProcessTriple());
  target.set_cpu(llvm::sys::getHostCPUName().str());
  target.set_features(absl::StrJoin(features, ","));
  return target;
}

}  // namespace xlad::runtime
