// Starts the ranks of `xlad bench --ranks N`: N processes of this program, with the same arguments.
#pragma once

#include "base/status.h"

namespace xlad::cli {

// Starts `ranks` processes, waits until all have ended, and returns the largest of their exit codes. A process that was
// killed by a signal counts as exit code 1 and is reported on standard error. If a process cannot be started, kills
// those that were started before and returns Unavailable. The kernel kills all of them when this process ends before
// they do, for example because a signal ends it.
absl::StatusOr<int> RunRanks(int ranks);

}  // namespace xlad::cli
