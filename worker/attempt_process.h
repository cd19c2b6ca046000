// The process in which one attempt runs, as the daemon sees it: starts it, exchanges messages with it, kills it, and
// says how it ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/message_socket.h"
#include "base/spawn.h"
#include "base/status.h"
#include "proto/attempt.pb.h"
#include "proto/xlad_v1.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// With this exit code a process says that it had no memory left.
inline constexpr int kExitOutOfMemory = 71;

// Thread-safe. A thread of its own sends, receives, copies the process's standard error to that of this process, and
// waits for its end.
class AttemptProcess {
 public:
  // `argv` finds its end of the socket at kChannelDescriptor. The process is killed when the calling thread ends.
  static absl::StatusOr<std::unique_ptr<AttemptProcess>> Start(const std::vector<std::string>& argv,
                                                               const AttemptSetup& setup);
  // Kills the process, if it has not ended, and waits for its end.
  ~AttemptProcess();

  pid_t pid() const { return process_.pid; }

  // From now on calls `on_report` for each report, those that have arrived already included, and then `on_end` once, on
  // the process's thread, or before this returns if the process has ended. Called once at most.
  void Listen(std::function<void(const AttemptReport&)> on_report, std::function<void(const ProcessEnd&)> on_end);
  // Never blocks; a process that has ended gets nothing.
  void Send(const AttemptCommand& command, FileDescriptor descriptor = {});
  // Kills the process after this time, or after that of an earlier call if that is sooner.
  void KillAfter(int64_t ms);
  bool HasEnded() const;
  void WaitForEnd();

 private:
  AttemptProcess(SpawnedProcess process, MessageSocket socket, FileDescriptor errors);

  void Run();
  // Waits for something to do. Returns false when the process has ended.
  bool Poll();
  void Receive();
  void ReadErrors();
  void Finish();
  int64_t PollTimeoutMs() const;

  const SpawnedProcess process_;
  MessageSocket socket_;
  FileDescriptor errors_;  // The read end of its standard error.
  FileDescriptor wake_;    // An eventfd: something changed for the thread.
  bool socket_is_open_ = true;
  std::string tail_;       // The end of its standard error.
  int64_t oom_kills_before_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, FileDescriptor>> outgoing_;
  std::deque<AttemptReport> early_reports_;  // Before Listen.
  std::function<void(const AttemptReport&)> on_report_;
  std::function<void(const ProcessEnd&)> on_end_;
  std::optional<int64_t> kill_at_ns_;
  bool killed_ = false;
  std::optional<ProcessEnd> end_;
  std::thread thread_;
};

}  // namespace xlad::worker
