// Measures kernel schedules on this machine.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::cli {

struct MeasuredSchedule {
  compiler::KernelSchedule schedule;
  int64_t ns = 0;  // The shortest time of a run. A run of a short kernel is timed as the mean of several in a row.
};

// How long a kernel may be measured, not counting its compilation, and on how many threads it runs.
struct MeasureOptions {
  const Clock* clock = nullptr;
  int64_t budget_ns = 0;
  int threads = 1;
};

// Compiles the kernel of `request`, which must have at least one schedule, with each schedule and runs them in turn,
// each at least three times. The results are in the order of `schedules`. Inputs are numbers between 1/2 and 3/2.
absl::StatusOr<std::vector<MeasuredSchedule>> MeasureSchedules(const compiler::KernelRequest& request,
                                                               const std::vector<compiler::KernelSchedule>& schedules,
                                                               const MeasureOptions& options);

}  // namespace xlad::cli
