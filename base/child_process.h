// A child process that runs in parallel to this one, such as a worker of a local cluster. For a child that turns one
// input into one output see base/subprocess.h.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace xlad {

// Owns the process: the destructor kills it (SIGKILL) and reaps it. The kernel kills it when this process dies. Not
// thread-safe.
class ChildProcess {
 public:
  // Runs `argv` (argv[0] is a path) with /dev/null as standard input. Standard output and standard error are appended
  // to the file `log_path`, or inherited if it is empty. The child has its own process group, so that Ctrl-C on the
  // terminal reaches only this process. Errors: Internal if the log cannot be opened, ResourceExhausted if fork fails.
  // If the program cannot be executed, the child exits with code 127.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             const std::string& log_path);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Sends a signal if the process has not ended.
  void Signal(int signal);
  // Polls, without blocking.
  bool HasEnded();
  // "exit code 1", "signal 9 (Killed)", or "still running", as of the last HasEnded or WaitFor.
  std::string HowEnded() const;
  // Waits until the process has ended, at most timeout_ms. Returns whether it has.
  bool WaitFor(int64_t timeout_ms);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace xlad
