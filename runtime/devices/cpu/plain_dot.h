// Matrix products of f64, and of s8 with sums in s32, by plain loops on the host.
//
// Only executables for GPUs have such products as library ops, because cuBLASLt computes them; for other devices the
// compiler generates kernels. These loops compute the products that neither cuBLASLt nor the kernels of the kind cuda
// support, which are rare, so they are not optimized.
#pragma once

#include <memory>

#include "runtime/devices/cpu/library_op.h"

namespace xlad::runtime {

// Whether the element types of lhs, rhs and result are f64, f64 and f64, or s8, s8 and s32.
bool HasPlainTypes(const DotOp& op);

// HasPlainTypes must be true. InvalidArgument if dimension numbers and shapes do not match.
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PreparePlainDot(const DotOp& op);

}  // namespace xlad::runtime
