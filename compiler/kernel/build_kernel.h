// From fusions to kernels.
#pragma once

#include <memory>
#include <optional>

#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// The kernel of a fusion, or of a single instruction, in row form (compiler/analysis/row_form.h); nullopt for all
// others, which are emitted without a kernel (compiler/codegen/llvm/loops.cc). Its inputs are the operands, in order,
// and its outputs the results.
//
// Every reduction and every result is a statement. So is a value that several statements need and that costs more to
// compute again than to hold for the length of a row (compiler/analysis/op_cost.h). Everything else is computed again
// in each statement that needs it. Sums of small floats are computed in f32 and rounded once.
std::optional<Kernel> BuildKernel(const Instruction& fusion);

// The kernel with the compiler's own schedule for about this number of tiles, or null if it has none.
std::shared_ptr<const ScheduledKernel> ScheduleFusion(const Instruction& fusion, int64_t wanted_tiles);

struct KernelRequest;
class ScheduleTables;

// The same for a request. A schedule that `tables` have for the kernel replaces the compiler's own; `tables` may be
// null. InvalidArgument, with the line of the table, if the schedule does not fit the kernel (ScheduleTables::Find).
absl::StatusOr<std::shared_ptr<const ScheduledKernel>> ScheduleRequest(const KernelRequest& request,
                                                                       const ScheduleTables* tables);

}  // namespace xlad::compiler
