// Random kernel schedules, for tests.
#pragma once

#include "base/random.h"
#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// A random schedule that uses the names of the kernel. ApplySchedule accepts only some of these schedules.
KernelSchedule RandomSchedule(const Kernel& kernel, Random* random);

// The kernel with a random schedule that ApplySchedule accepts.
absl::StatusOr<ScheduledKernel> RandomScheduled(const Kernel& kernel, Random* random);

}  // namespace xlad::compiler
