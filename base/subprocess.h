// A child process that reads its standard input to the end, writes its answer to standard output and exits.
//
// The compile child runs this way: a crash, a hang or a memory limit there is one error here.
#pragma once

#include <cstdint>
#include <string>
#include "absl/strings/string_view.h"
#include <vector>

#include "base/status.h"

namespace xlad {

struct ChildLimits {
  int64_t timeout_ms = 600'000;
  int64_t memory_bytes = 0;  // Address space; 0: no limit.
};

struct ChildResult {
  int exit_code = 0;   // -1 where a signal ended it.
  int signal = 0;      // The signal that ended it, or 0.
  std::string output;  // Standard output, whole.
  std::string errors;  // The last 64 KiB of standard error.
};

// Runs `argv` (argv[0] is a path) and waits. DeadlineExceeded where it was killed for time.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits = {});

// The path of this program's own file.
std::string OwnExecutablePath();

}  // namespace xlad
