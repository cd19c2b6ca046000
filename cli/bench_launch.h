// Starts the ranks of `xlad bench --ranks N`: N processes of this program, with the same arguments.
#pragma once

#include "base/status.h"

namespace xlad::cli {

// Starts `ranks` processes, waits until all have ended, and returns the largest of their exit codes. A process that was
// killed by a signal counts as exit code 1 and is reported on standard error. Returns Unavailable if a process could
// not be started, and kills those that were started before. The kernel kills all of them when this process ends before
// they do, for example because a signal ends it.
absl::StatusOr<int> RunRanks(int ranks);

}  // namespace xlad::cli
