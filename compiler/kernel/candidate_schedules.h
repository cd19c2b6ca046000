// Kernel schedules that are worth measuring.
#pragma once

#include <vector>

#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// Schedules with the loops and statements of `usual` in the same order, with other tiles and other splits of the
// innermost dimension; the schedule of `usual` is the first. All can be applied to the kernel, and their tiles are
// different. A function of its arguments alone.
std::vector<KernelSchedule> CandidateSchedules(const ScheduledKernel& usual);

}  // namespace xlad::compiler
