// What the workers of running attempts report, and what follows for the attempts.
//
// Evidence: the exit of an attempt's process ends the attempt at once. A task that failed ends it as soon as the
// suspect that it names is known to be gone, or after a grace period with the reported error. A worker that is silent
// ends it when the worker counts as lost. A closed connection alone ends only an attempt that has not started: its
// peers cannot tell yet whether the worker lives, and the attempt has done nothing that would be lost.
#pragma once

#include <string>

#include "service/attempts/checkpoints.h"
#include "service/attempts/ending.h"
#include "service/state/context.h"

namespace xlad::service {

// It has more than 25 methods because it has one for each message about an attempt.
class AttemptMachine {
 public:
  explicit AttemptMachine(Context* context) : context_(*context), checkpoints_(context) {}

  Checkpoints& checkpoints() { return checkpoints_; }

  // Places the job's next attempt on these workers and launches it.
  void Launch(Job* job, const std::vector<Peer>& peers, const std::vector<CollectivePlanProto>& plans);

  // --- Messages of a worker about attempts. Stale ones are refused.
  void OnReported(const WorkerId& worker, const RunningTask& task);
  void OnReady(const WorkerId& worker, const TaskReady& message);
  void OnSteps(const WorkerId& worker, const TaskSteps& message);
  void OnShardWritten(const WorkerId& worker, const ShardWritten& message);
  void OnTrace(const WorkerId& worker, const TaskTrace& message);
  void OnStopAnswer(const WorkerId& worker, const TaskStopAnswer& message);
  void OnStopped(const WorkerId& worker, const TaskStopped& message);
  void OnFinished(const WorkerId& worker, const TaskFinished& message);
  void OnFailed(const WorkerId& worker, const TaskFailed& message);
  void OnExited(const WorkerId& worker, const AttemptExited& message);
  // The worker has registered; `message` lists its tasks. Handles the attempts that are not among them.
  void OnRegistered(const WorkerId& worker, const RegisterWorker& message);

  // The worker is lost: ends its attempts.
  void OnWorkerLost(const WorkerId& worker, const std::string& why);
  // The connection of the worker has closed: it may be the suspect of a failure.
  void OnWorkerGone(const WorkerId& worker);
  // Stops the attempts on the worker, so that they continue elsewhere.
  void VacateWorker(const WorkerId& worker, const std::string& why);
  // Stops the running attempt before a step that no worker has begun yet, with its state saved.
  void Stop(Job* job, const std::string& reason);

  void OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored);
  void OnTick();
  // Restores what is known of the running attempts after a restart of the coordinator.
  void AfterRecovery();

 private:
  void Complete(Job* job);
  // The worker is ready; the attempt has started when all are.
  void NoteReady(const WorkerId& worker, Job* job);
  // Tells the worker where the attempt stops, if it does.
  void SendStop(const WorkerId& worker, const Job& job);
  void CheckFailure(Job* job);
  void CheckStart(Job* job);
  void RenewLease(Job* job, Attempt* attempt, int64_t step);
  void SendLease(const WorkerId& worker, const Job& job);
  void NoteProgress(const WorkerId& worker, const RunningTask& task, Job* job, Attempt* attempt);

  Context& context_;
  Checkpoints checkpoints_;
};

}  // namespace xlad::service
