// The target of code for this machine's CPU.
#pragma once

#include <string>

#include "proto/executable.pb.h"

namespace xlad::runtime {

// The target with LLVM's triple, CPU name and features of this machine, for code that devices of kind `device_kind`
// run. Equal machines have equal targets.
Target HostTarget(const std::string& device_kind);

}  // namespace xlad::runtime
