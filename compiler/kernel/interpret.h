// The interpreter of scheduled kernels: runs the loops as written, element by element, with the reference evaluator.
// Tests compare its results with those of the evaluator on the complete program, and with those of compiled kernels.
#pragma once

#include <vector>

#include "compiler/kernel/kernel_schedule.h"
#include "tensor/array.h"

namespace xlad::compiler {

struct KernelRun {
  std::vector<tensor::Array> outputs;  // In the order of the kernel's arrays.
  // The bytes moved between memory and an ideal cache that holds all elements of one iteration of the bound loops. Each
  // element of an input, output or unstaged temporary is counted once per iteration, at its first access: as read or as
  // written.
  int64_t bytes_read = 0, bytes_written = 0;
};

// `inputs` are the values of the arrays with the role kInput, in their order. Each may have any shape with the right
// number of elements. InvalidArgument if one is missing or surplus or has the wrong type or number of elements.
// Elements of outputs that no statement writes are zeros.
absl::StatusOr<KernelRun> InterpretKernel(const ScheduledKernel& kernel, const std::vector<tensor::Array>& inputs);

}  // namespace xlad::compiler
