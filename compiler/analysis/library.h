// Which instructions the library (oneDNN, in the runtime) computes, and their descriptors.
#pragma once

#include "compiler/analysis/hlo_util.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// A dot or convolution of types and forms that the library takes. Others are kernels.
bool IsLibraryOp(const Instruction& instruction);
LibraryOp MakeLibraryOp(const Instruction& instruction);

ArrayShape ToProto(const Shape& shape);

}  // namespace xlad::compiler
