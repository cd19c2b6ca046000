// The instructions that the runtime computes itself or with a library, instead of with compiled kernels, and their
// descriptors.
#pragma once

#include "compiler/analysis/hlo_names.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Whether the instruction is a library op. These are dots and convolutions whose element types, windows and groups
// oneDNN supports, ffts, calls to LAPACK routines, cholesky and triangular-solve of f32, f64 or complex matrices with
// at least 8 rows, and attention (attention_op.h).
bool IsLibraryOp(const Instruction& instruction);

// Whether the instruction is a library op on GPUs only: cuBLASLt computes dots of f64, and of s8 with a result of s32.
// For other devices, the compiler generates kernels. It also does so for dots whose batch, rows, columns or sum have
// more than 3 dimensions of a size other than 1, because the runtime has no kernel for them if cuBLASLt refuses them.
bool IsGpuLibraryOp(const Instruction& instruction);

// The descriptor of a library op: its shapes and attributes. IsLibraryOp or IsGpuLibraryOp must be true.
LibraryOp MakeLibraryOp(const Instruction& instruction);

// The highest of the precisions that the attributes of a dot or convolution give for its operands.
Precision PrecisionOf(const Instruction& instruction);
// The number of bf16 products that compute a product of f32 with this precision: 1, 3 or 6.
int Bf16Passes(Precision precision);

}  // namespace xlad::compiler
