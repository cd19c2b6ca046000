// What code for this machine's CPU must be compiled for.
#pragma once

#include "proto/executable.pb.h"

namespace xlad::runtime {

// LLVM's triple, CPU name and features of this machine.
Target HostTarget();

}  // namespace xlad::runtime
