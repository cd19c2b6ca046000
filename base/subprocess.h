// A child process as a function from bytes to bytes: it reads all of standard input, writes its result to standard
// output and exits. The compiler runs this way, so that a crash, a hang or a lack of memory in it is an error of one
// job here.
#pragma once

#include <cstdint>
#include <string>
#include "absl/strings/string_view.h"
#include <vector>

#include "base/status.h"

namespace xlad {

struct ChildLimits {
  int64_t timeout_ms = 600'000;
  int64_t memory_bytes = 0;  // Limit on the address space (RLIMIT_AS), or 0 for none.
};

struct ChildResult {
  int exit_code = 0;   // 127 if the program could not be executed; -1 if a signal ended it.
  int signal = 0;      // The signal that ended it, or 0.
  std::string output;  // All of standard output.
  std::string errors;  // The last 64 KiB of standard error.
};

// Runs `argv` (argv[0] is a path) on `input` and waits for its end. A child that fails is a result, not an error.
// Errors: DeadlineExceeded if the child was killed after timeout_ms, Internal or ResourceExhausted if the system has no
// pipe or process left. Thread-safe.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits = {});

// The path of the file that this process executes.
std::string OwnExecutablePath();

}  // namespace xlad
