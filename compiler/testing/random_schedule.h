// Random kernel schedules, for tests.
#pragma once

#include "base/random.h"
#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// A schedule made of the kernel's names, of which ApplySchedule accepts only some.
KernelSchedule RandomSchedule(const Kernel& kernel, Random* random);

// The kernel with a random schedule that was accepted.
absl::StatusOr<ScheduledKernel> RandomScheduled(const Kernel& kernel, Random* random);

}  // namespace xlad::compiler
