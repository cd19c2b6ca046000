// The reductions that the kernel of reduce_kernel.h supports, and the kernel for the host.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "collectives/exec/device/reduce_kernel.h"
#include "collectives/exec/device_ops.h"

namespace xlad::collectives {

// A reduction in the form that the kernel understands.
struct KernelReduction {
  XladReduce what = {};         // Without the number of sources.
  int numbers_per_element = 1;  // A complex number is two numbers.
};

// Returns nullopt if the kernel does not support the reduction.
std::optional<KernelReduction> KernelReductionOf(const DeviceReduction& reduction);

// Returns InvalidArgument if the numbers of sources or elements are not allowed, and Unimplemented if the kernel does
// not support the reduction. Otherwise returns the reduction with the number of sources.
absl::StatusOr<KernelReduction> CheckedKernelReduction(const DeviceReduction& reduction, size_t sources, int64_t count);

// Runs the kernel for `count` numbers on the calling thread.
void RunReduceKernel(const XladReduce& what, void* to, absl::Span<const void* const> sources, int64_t count);

}  // namespace xlad::collectives
