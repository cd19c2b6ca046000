// The instructions that the runtime computes itself or with a library, instead of with compiled kernels, and their
// descriptors.
#pragma once

#include "compiler/analysis/hlo_names.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Whether the instruction is a library op: a dot or convolution that oneDNN supports (its element types, window and
// groups), an fft, a call to a LAPACK routine, a cholesky or triangular-solve that LAPACK computes, or an attention
// (attention_op.h). All other instructions are kernels.
bool IsLibraryOp(const Instruction& instruction);

// The descriptor of a library op: its shapes and attributes. IsLibraryOp must be true.
LibraryOp MakeLibraryOp(const Instruction& instruction);

ArrayShape ToProto(const Shape& shape);  // An array's element type and dimensions.

}  // namespace xlad::compiler
