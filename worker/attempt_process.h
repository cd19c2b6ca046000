// The daemon's handle of the process in which one attempt runs: starts it, exchanges messages with it, kills it, and
// reports how it ended.
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

#include "base/net/message_socket.h"
#include "base/process/spawn.h"
#include "base/status.h"
#include "proto/attempt.pb.h"
#include "proto/xlad_v1.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// The exit code of a process that had no memory left.
inline constexpr int kExitOutOfMemory = 71;

// Thread-safe. A thread of this object sends and receives messages, copies the process's standard output and standard
// error to the standard error of the daemon, and waits for the end of the process.
class AttemptProcess {
 public:
  // Starts `argv`, with its end of the socket as descriptor kChannelDescriptor. The process is killed when the calling
  // thread ends. Every error is Unavailable: this machine lacks processes or descriptors, and a later try may succeed.
  static absl::StatusOr<std::unique_ptr<AttemptProcess>> Start(const std::vector<std::string>& argv,
                                                               const AttemptSetup& setup);
  // Kills the process, if it has not ended, and waits for its end.
  ~AttemptProcess();

  pid_t pid() const { return process_.pid; }

  // Calls `on_report` for each report, including those that have already arrived, and then `on_end` once. The calls are
  // made on this object's thread, or, if the process has ended, on the calling thread before Listen returns. Listen
  // must be called at most once.
  void Listen(std::function<void(const AttemptReport&)> on_report, std::function<void(const ProcessEnd&)> on_end);
  // Never blocks. If the process has ended, the command is dropped.
  void Send(const AttemptCommand& command, FileDescriptor descriptor = {});
  // Kills the process after this time, or at the time of an earlier call if that is sooner.
  void KillAfter(int64_t ms);
  bool HasEnded() const;
  void WaitForEnd();

 private:
  static absl::StatusOr<std::unique_ptr<AttemptProcess>> TryStart(const std::vector<std::string>& argv,
                                                                  const AttemptSetup& setup);
  AttemptProcess(SpawnedProcess process, MessageSocket socket, FileDescriptor output, FileDescriptor wake);

  void Run();
  // Waits for the next message, output or command and handles it. Returns false when the process has ended.
  bool Poll();
  void Receive();
  // Passes the reports to on_report_, if it is set. Called only on this object's thread, or after that thread has
  // ended, so that the reports keep their order.
  void Deliver();
  void ReadOutput();
  void Finish();
  int64_t PollTimeoutMs() const;

  const SpawnedProcess process_;
  MessageSocket socket_;
  FileDescriptor output_;  // The read end of the process's standard output and error.
  FileDescriptor wake_;    // An eventfd that wakes the thread.
  bool socket_is_open_ = true;
  std::string tail_;  // The last bytes of the process's standard output and error.
  const std::optional<int64_t> oom_kills_before_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, FileDescriptor>> outgoing_;
  std::deque<AttemptReport> reports_;  // The reports that have arrived and are not delivered yet, oldest first.
  std::function<void(const AttemptReport&)> on_report_;
  std::function<void(const ProcessEnd&)> on_end_;
  std::optional<int64_t> kill_at_ns_;
  bool killed_ = false;
  std::optional<ProcessEnd> end_;
  std::thread thread_;
};

}  // namespace xlad::worker
