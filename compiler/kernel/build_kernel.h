// Builds kernels from fusions.
#pragma once

#include <memory>
#include <optional>

#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// Returns the kernel of a fusion or a single instruction in row form (compiler/analysis/row_form.h). Returns nullopt
// for any other instruction: its code is emitted without a kernel (compiler/codegen/llvm/loops.cc). The inputs of the
// kernel are the operands, in order, and its outputs are the results. Dots and convolutions that CPUs compute in blocks
// also have kernels (compiler/kernel/product_schedule.h).
//
// Every reduction and every result is a statement. So is a row value that depends on a reduction, is not free to
// compute and is read by a full value. A full value that several statements need is also a statement if recomputing it
// is more expensive than storing it for a row (compiler/analysis/op_cost.h). The full values that are stored for one
// row take at most 256 KiB together. All other values are computed again in each statement that needs them. Sums,
// products, maxima and minima of floats with fewer than 32 bits are computed in f32 and rounded once.
std::optional<Kernel> BuildKernel(const Instruction& fusion);

// The kernel with the compiler's own schedule for about `wanted_tiles` tiles, or null if the instruction has no kernel.
std::shared_ptr<const ScheduledKernel> ScheduleFusion(const Instruction& fusion, int64_t wanted_tiles);

struct KernelRequest;
class ScheduleTables;

// The kernel of a request, or null if the instruction has no kernel. If `tables` have a schedule for the kernel, it
// replaces the compiler's own schedule. `tables` may be null. InvalidArgument, with the line of the table, if the
// schedule does not fit the kernel (ScheduleTables::Find).
absl::StatusOr<std::shared_ptr<const ScheduledKernel>> ScheduleRequest(const KernelRequest& request,
                                                                       const ScheduleTables* tables);

}  // namespace xlad::compiler
