// Which instructions the library (oneDNN, in the runtime) computes, and their descriptors.
#pragma once

#include "compiler/analysis/hlo_names.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Whether the library supports this dot or convolution: its element types, window and groups. All other instructions
// are kernels.
bool IsLibraryOp(const Instruction& instruction);

// The descriptor of a library op: shapes, dimension numbers and window. Needs IsLibraryOp.
LibraryOp MakeLibraryOp(const Instruction& instruction);

ArrayShape ToProto(const Shape& shape);  // An array's element type and dimensions.

}  // namespace xlad::compiler
