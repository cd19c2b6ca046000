// The interpreter of scheduled kernels: runs the loops as they are written, element by element, on the reference
// evaluator. Tests compare it with the evaluator on the whole program, and compiled kernels with it.
#pragma once

#include <vector>

#include "compiler/kernel/kernel_schedule.h"
#include "tensor/array.h"

namespace xlad::compiler {

struct KernelRun {
  std::vector<tensor::Array> outputs;  // In the order of the kernel's arrays.
  // The bytes that move between memory and a cache that holds one iteration of the bound loops: elements of inputs that
  // such an iteration reads, each counted once, and elements of outputs and unstaged temporaries that it reads or
  // writes first.
  int64_t bytes_read = 0, bytes_written = 0;
};

// `inputs` are the arrays with the role of inputs, in their order, in any shape with the right number of elements.
// InvalidArgument if they do not fit. Elements of outputs that no statement writes are zeros.
absl::StatusOr<KernelRun> InterpretKernel(const ScheduledKernel& kernel, const std::vector<tensor::Array>& inputs);

}  // namespace xlad::compiler
