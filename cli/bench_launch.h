// Starts the ranks of `xlad bench --ranks N`: as many processes of this program, with the same arguments.
#pragma once

#include "base/status.h"

namespace xlad::cli {

// Starts `ranks` processes, waits until all have ended, and returns the largest of their exit codes; 1 for a process
// that was killed by a signal, which is reported on standard error.
absl::StatusOr<int> RunRanks(int ranks);

}  // namespace xlad::cli
