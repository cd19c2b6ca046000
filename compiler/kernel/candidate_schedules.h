// Kernel schedules that are worth measuring.
#pragma once

#include <vector>

#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// Schedules with the same order of loops and statements as `usual`, but with other tile sizes and other splits of the
// innermost dimension. The first one is the schedule of `usual`. All can be applied to the kernel, and no schedule
// occurs twice. The result depends only on the argument.
std::vector<KernelSchedule> CandidateSchedules(const ScheduledKernel& usual);

}  // namespace xlad::compiler
