// A task that runs in a separate process (worker/attempt_main.cc): forwards calls to the process, and converts the
// process's reports and its end into events.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "worker/attempt_process.h"
#include "worker/peer_acceptor.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// Calls `emit` for each event, on the thread of the AttemptProcess, or in the constructor if the process has already
// ended. The last event is TaskHasExited.
class ChildTask final : public Task {
 public:
  // `acceptor` passes the connections of the attempt's peers to the process; it must outlive the task.
  ChildTask(const LaunchTask& launch, std::unique_ptr<AttemptProcess> process, PeerAcceptor* acceptor,
            std::function<void(Event)> emit);
  // Ends the process, kills it if it has not ended after five seconds, and returns when it has ended.
  ~ChildTask() override;

  void Start(const StartTask& message) override;
  void Lease(int64_t lease_until_step) override;
  void StopAt(int64_t step) override;
  // The process is killed if it has not ended by itself two seconds later, for example because a kernel loops forever.
  void Abort(const collectives::Failure& failure) override;
  void CheckpointAt(int64_t step) override;
  void CheckpointIsCommitted(int64_t step) override;
  void ReplaceCode(const std::string& executable_digest) override;
  int64_t finished_steps() const override { return finished_steps_; }
  std::vector<SilentPeer> silent_peers() const override;

 private:
  void Forward(CoordinatorMessage message);
  void OnReport(const AttemptReport& report);

  const LaunchTask launch_;
  const TaskKey key_;
  PeerAcceptor* const acceptor_;
  const std::function<void(Event)> emit_;
  std::atomic<int64_t> finished_steps_;
  mutable std::mutex silent_mutex_;
  std::vector<SilentPeer> silent_;
  std::unique_ptr<AttemptProcess> process_;  // Declared last, because its thread uses the other members.
};

}  // namespace xlad::worker
