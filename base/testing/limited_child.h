// For tests of writers that are killed or whose disk is full.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/functional/function_ref.h"

namespace xlad {

// Runs `body` in a child process in which no file can have more than `limit` bytes. If `is_killed` is true, the first
// write beyond the limit kills the child; otherwise the write fails. The child's exit code is 0 if `body` returns true,
// and otherwise 1. Returns the status of waitpid, or -1 if there is no child.
inline int RunWithFileLimit(rlim_t limit, bool is_killed, absl::FunctionRef<bool()> body) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, is_killed ? SIG_DFL : SIG_IGN);
    const rlimit limits{limit, limit}, no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &limits);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace xlad
