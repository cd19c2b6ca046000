// Handles what the workers report about running attempts: starts, progress, failures and ends.
//
// An attempt ends at once if its process on a worker exits, or if a task fails without naming a suspect. A suspect is
// the worker that may have caused the failure. If a failure names one, the attempt ends when the suspect is known to be
// gone, or after a grace period. If a worker is silent, the attempt ends when the worker counts as lost. A closed
// connection alone ends only an attempt that has not started, and only after a wait: the worker's peers cannot report
// yet whether the worker is alive, and no work is lost.
#pragma once

#include <string>
#include <vector>

#include "service/attempts/checkpoints.h"
#include "service/attempts/ending.h"
#include "service/state/context.h"

namespace xlad::service {

// The class has more than 25 methods because it has one for each message about an attempt.
class AttemptMachine {
 public:
  explicit AttemptMachine(Context* context) : context_(*context), checkpoints_(context) {}

  Checkpoints& checkpoints() { return checkpoints_; }

  // Places the job's next attempt on these workers and launches it.
  void Launch(Job* job, const std::vector<Peer>& peers, const std::vector<CollectivePlanProto>& plans);

  // --- Messages of a worker about attempts. A message about an attempt that is not running changes nothing; most are
  // answered with an order to abort or forget that attempt.
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
  // Called when the worker has registered. Repeats the messages about the attempts that `message` lists. An attempt on
  // the worker that is not listed is launched again if it is starting and this process of the worker has never reported
  // it. Otherwise it fails.
  void OnRegistered(const WorkerId& worker, const RegisterWorker& message);

  // Ends the attempts of a worker that is lost. After a restart of the coordinator, attempts whose workers have not all
  // reconnected continue to wait.
  void OnWorkerLost(const WorkerId& worker, const std::string& why);
  // Called when the worker's connection has closed. Ends the attempts whose suspect is this worker.
  void OnWorkerGone(const WorkerId& worker);
  // Stops the attempts on the worker, so that their jobs continue elsewhere. Sessions that run there fail.
  void VacateWorker(const WorkerId& worker, const std::string& why);
  // Saves the state and stops the attempt before a step that no worker has begun. An attempt that has not started is
  // stopped at once. After a restart of the coordinator, the attempt is stopped only when all of its workers have
  // reconnected. A session that runs fails, because its state cannot be saved.
  void Stop(Job* job, const std::string& reason);

  // Sends the optimized code of a running attempt to its workers, if it was placed with quickly compiled code.
  void SendNewCode(const Job& job);

  void OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored);
  void OnTick();
  // Restores the state of the running attempts after a restart of the coordinator.
  void AfterRecovery();

 private:
  void Complete(Job* job);
  // Records that the worker is ready. The attempt starts when all of its workers are ready.
  void NoteReady(const WorkerId& worker, Job* job);
  // Sends the worker the step before which the attempt stops, if a stop was requested.
  void SendStop(const WorkerId& worker, const Job& job);
  void CheckFailure(Job* job);
  void CheckStart(Job* job);
  void RenewLease(Job* job, Attempt* attempt, int64_t step);
  void SendLease(const WorkerId& worker, const Job& job);
  void SendNewCode(const WorkerId& worker, const Job& job);
  void NoteCode(const WorkerId& worker, const std::vector<StepMetrics>& steps, Job* job);
  void NoteProgress(const WorkerId& worker, const RunningTask& task, Job* job, Attempt* attempt);

  Context& context_;
  Checkpoints checkpoints_;
};

}  // namespace xlad::service
