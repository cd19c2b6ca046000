// Definitions of the C library's math functions for GPU code (device_math.c).
#pragma once

#include "base/status.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace xlad::compiler {

// If the module calls functions that it does not define, adds their definitions and makes all functions except kernels
// internal. Unimplemented, naming the function, if there is no definition. Internal if the definitions cannot be read
// or linked.
absl::Status DefineMathFunctions(llvm::Module& module);

}  // namespace xlad::compiler
