// Child processes: ones that run in parallel to this one, such as the workers of a local cluster (ChildProcess), and
// ones that turn one input into one output (RunChild). The compiler runs in the latter way, so that a crash, a hang or
// a lack of memory in it is an error of one job here.
//
// Every child is in its own process group, so that Ctrl-C on the terminal signals only this process, and the kernel
// kills it when this process or the thread that started it ends (base/spawn.h). If the program of a child cannot be
// executed, the child exits with code 127.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/spawn.h"
#include "base/status.h"

namespace xlad {

// Owns the process: the destructor kills it (SIGKILL) and reaps it. Not thread-safe.
class ChildProcess {
 public:
  // Runs `argv` (argv[0] is a path) with /dev/null as standard input. Standard output and standard error are appended
  // to the file `log_path`, or inherited if it is empty. Errors: Internal if the log cannot be opened,
  // ResourceExhausted if the system has no process left.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             const std::string& log_path);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return process_.pid; }
  // Sends a signal if the process has not ended.
  void Signal(int signal);
  // Polls, without blocking.
  bool HasEnded();
  // "exit code 1", "signal 9 (Killed)", or "still running", as of the last HasEnded or WaitFor.
  std::string HowEnded() const;
  // Waits until the process has ended, at most timeout_ms. Returns whether it has.
  bool WaitFor(int64_t timeout_ms);

 private:
  explicit ChildProcess(SpawnedProcess process) : process_(std::move(process)) {}
  const SpawnedProcess process_;
  bool ended_ = false;
  int status_ = 0;
};

// How a process ended, from the status that waitpid returns: "exit code 1" or "signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

// Cancels blocked work from any thread. Once raised, it stays raised.
class CancelSignal {
 public:
  CancelSignal();
  void Raise();
  bool raised() const { return raised_; }
  // Readable once the signal is raised.
  int fd() const { return event_.get(); }

 private:
  std::atomic<bool> raised_ = false;
  FileDescriptor event_;
};

struct ChildLimits {
  int64_t timeout_ms = 600'000;
  int64_t memory_bytes = 0;  // Limit on the address space (RLIMIT_AS), or 0 for none.
  int64_t cpu_seconds = 0;   // Limit on the processor time of all its threads together, or 0 for none.
  CancelSignal* cancel = nullptr;  // Kills the child when it is raised; may be null.
};

struct ChildResult {
  int exit_code = 0;   // 127 if the program could not be executed; -1 if a signal ended it.
  int signal = 0;      // The signal that ended it, or 0.
  std::string output;  // All of standard output.
  std::string errors;  // The last 64 KiB of standard error.
};

// Runs `argv` (argv[0] is a path) on `input` and waits for its end. A child that fails is a result, not an error.
// Errors: DeadlineExceeded if the child was killed after timeout_ms, Cancelled if it was killed because of the signal,
// ResourceExhausted if the system has no pipe or process left. Thread-safe.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits = {});

// The path of the file that this process executes.
std::string OwnExecutablePath();

}  // namespace xlad
