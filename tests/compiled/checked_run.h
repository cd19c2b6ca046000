// Runs single kernels of gpu_sim_checked, intact or damaged, for tests.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/nvptx/host_threads.h"
#include "compiler/kernel/object_emitter.h"
#include "runtime/devices/gpu_sim/access_checker.h"
#include "tensor/array.h"

namespace xlad::compiler {

struct CheckedRun {
  runtime::LaunchReport report;
  std::vector<tensor::Array> results;
};

// Random values for the leaves of the operands of a kernel. Integers are from 0 to 7 because many of them are indices.
// With an index out of range, a loss would be NaN in a damaged kernel as well as in an intact one.
std::vector<tensor::Array> RandomOperands(const KernelRequest& request, uint64_t seed);
// Compiles a kernel for gpu_sim_checked with these options and runs it. All memory that the kernel writes has the same
// contents before each run.
absl::StatusOr<CheckedRun> RunChecked(const KernelRequest& request, const std::vector<tensor::Array>& inputs,
                                      HostOptions options);
bool SameBits(const std::vector<tensor::Array>& a, const std::vector<tensor::Array>& b);

}  // namespace xlad::compiler
