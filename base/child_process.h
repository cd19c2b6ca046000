// A long-running child process: the worker processes of a local cluster.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace xlad {

// Killed (SIGKILL) and reaped when the object goes away, and by the system when this process dies.
class ChildProcess {
 public:
  // Runs `argv` (argv[0] is a path) with standard input closed, standard output and error appended to `log_path`
  // (inherited where that is empty).
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             const std::string& log_path);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Whether it has ended; then how, in words ("exit code 1", "signal 9").
  bool HasEnded();
  std::string HowEnded() const;
  // Waits up to timeout_ms for the end.
  bool WaitFor(int64_t timeout_ms);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace xlad
