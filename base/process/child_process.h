// Child processes. A ChildProcess, such as a worker of a local cluster, runs concurrently with this process. RunChild
// runs a child that turns one input into one output. The compiler runs in this way: if it crashes, hangs or runs out of
// memory, only one job fails.
//
// Every child is in its own process group, so Ctrl-C on the terminal signals only this process. The kernel kills a
// child when this process or the thread that started it ends (base/process/spawn.h). If the program of a child cannot
// be executed, the child exits with code 127.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/process/spawn.h"
#include "base/status.h"

namespace xlad {

// Owns the process: the destructor kills it (SIGKILL) and reaps it. Not thread-safe.
class ChildProcess {
 public:
  // Runs `argv` (argv[0] is a path) with /dev/null as standard input. Standard output and standard error are appended
  // to the file `log_path`, or inherited if `log_path` is empty. Errors: Internal if the log cannot be opened,
  // ResourceExhausted if the system cannot create another process or descriptor.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             const std::string& log_path);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return process_.pid; }
  // Sends a signal if the process has not ended.
  void Signal(int signal);
  // Polls the process without blocking. Returns whether it has ended.
  bool HasEnded();
  // Returns "exit code 1", "signal 9 (Killed)" or "still running", according to the last HasEnded or WaitFor.
  std::string HowEnded() const;
  // Waits at most timeout_ms for the process to end. Returns whether it has ended.
  bool WaitFor(int64_t timeout_ms);

 private:
  explicit ChildProcess(SpawnedProcess process) : process_(std::move(process)) {}
  const SpawnedProcess process_;
  bool ended_ = false;
  int status_ = 0;
};

// Returns how a process ended, given the status of waitpid: "exit code 1" or "signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

// A signal that cancels blocked work. Any thread may raise it, and it then stays raised.
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
  int64_t timeout_ms = 600'000;  // The time within which the child must end and its outputs must be closed.
  int64_t memory_bytes = 0;  // The limit on the address space (RLIMIT_AS), or 0 for none.
  int64_t cpu_seconds = 0;   // The limit on the processor time of all threads of the child together, or 0 for none.
  int64_t output_bytes = int64_t{2} << 30;  // The limit on standard output, which this process keeps in memory.
  int nice = 0;  // Added to the niceness of the child (setpriority(2)); a nicer child gets less processor time.
  CancelSignal* cancel = nullptr;  // If it is raised before the child has ended, the child is killed. May be null.
};

struct ChildResult {
  int exit_code = 0;   // 127 if the program could not be executed; -1 if a signal ended it.
  int signal = 0;      // The signal that ended the child, or 0.
  std::string output;  // All of standard output.
  std::string errors;  // The last 64 KiB of standard error.
};

// Runs `argv` (argv[0] is a path) with `input` as its standard input and waits until the child has ended. A child that
// fails is a result, not an error. Errors: DeadlineExceeded if the child was killed after timeout_ms, Cancelled if it
// was killed because `cancel` was raised, ResourceExhausted if it was killed because of output_bytes or if the system
// cannot create another pipe, process or descriptor, Internal if poll(2) fails. Makes this process ignore SIGPIPE.
// Thread-safe.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits = {});

// A child of RunChild that is started before its input and its limits are known, so that it can prepare its work. Until
// it has read all of its standard input, it must not do anything for which the limits are meant. Not thread-safe.
class IdleChild {
 public:
  // Starts `argv` with the limits of memory and processor time and with the niceness of `limits`. The child is killed
  // when the calling thread ends. Errors: ResourceExhausted if the system cannot create another pipe or process. Makes
  // this process ignore SIGPIPE.
  static absl::StatusOr<std::unique_ptr<IdleChild>> Start(const std::vector<std::string>& argv,
                                                          const ChildLimits& limits = {});
  // Kills the child if it has not ended, and reaps it.
  ~IdleChild();
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

  pid_t pid() const { return process_.pid; }
  // Limits the memory and the processor time of the child, and adds to its niceness. The processor time that the child
  // has used before counts toward its limit, as in a child that starts with the limit. Unavailable if the child has
  // ended, or if the system does not allow this; it must then not get any input.
  absl::Status Limit(const ChildLimits& limits);
  // Passes the input to the child and waits until it has ended, with the other limits of `limits`. The result and the
  // errors are those of RunChild. Must be called at most once.
  absl::StatusOr<ChildResult> Run(absl::string_view input, const ChildLimits& limits);

 private:
  explicit IdleChild(std::string name) : name_(std::move(name)) {}
  absl::Status Communicate(absl::string_view input, const ChildLimits& limits, ChildResult* result);
  void WriteInput(absl::string_view* input);

  const std::string name_;  // For error messages.
  SpawnedProcess process_;
  Pipe in_, out_, err_;
};
}  // namespace xlad
