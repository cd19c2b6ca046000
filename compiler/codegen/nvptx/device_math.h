// Definitions of the C library's math functions for GPU code (device_math.c).
#pragma once

#include "base/status.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace xlad::compiler {

// Adds the definitions of the functions that the module calls and does not define, and makes all functions but kernels
// internal. Unimplemented, naming the function, if there is no definition.
absl::Status DefineMathFunctions(llvm::Module& module);

}  // namespace xlad::compiler
