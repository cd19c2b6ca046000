// The workers of a storm: processes that follow the protocol of proto/worker.proto, their connections, and the attempts
// that they run together. Everything about them can fail. Used by one thread.
//
// The tasks of an attempt step in lockstep, as collectives force them to. The state that they hold has contents
// (log_model.h): a task that starts from another state than it should, or continues behind a fence, leaves traces of
// that in its shards and losses.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "service/coordinator.h"
#include "tests/simulation/log_model.h"

namespace xlad::simulation {

class Storm;

// More than 25 methods: one per message of the protocol and per fault.
class StormWorkers {
 public:
  StormWorkers(Storm* storm, int workers, int devices_each);
  ~StormWorkers();

  void Start();
  // The coordinator's process has ended, or does not serve any more: all connections close.
  void OnCoordinatorGone();
  // A message of the coordinator; lost if the connection is gone.
  void Deliver(int64_t connection, const CoordinatorMessage& message);
  void Close(int64_t connection);
  // Stores the index of a checkpoint, from the shards that were written.
  service::Checkpoint StoreIndex(const CheckpointIndex& index);

  std::string AnyId();
  // Whether an id will never be used again: its process has gone for good, or came back under another one.
  bool HasLostIds() const { return has_lost_ids_; }

  // Whether the worker's process and paths have worked for so long that it cannot count as lost.
  bool IsWell(const std::string& id) const;
  // Whether no process has this id now.
  bool HasDied(const std::string& id) const;
  // When the last of the processes that are stopped continues.
  int64_t StoppedUntilNs() const;
  // Reports tasks of attempts that have ended.
  void CheckEnd() const;

  // Whether the worker runs and can be reached by the coordinator and by its peers, now.
  bool IsReachable(const std::string& id) const;
  // Closes the connection, if it is still open; kills the worker too, which starts again.
  void Break(int64_t connection, bool kill);
  // After the start of a coordinator: the path of `late` is cut at once, and that of `lost` when it has registered;
  // `late` comes back after `lost` counts as lost, and before `lost` comes back.
  void CutDuringAdoption(const std::string& late, const std::string& lost);
  // One fault of a worker or of a path.
  void Misfortune();
  // Ends all faults.
  void Repair();

 private:
  using TaskKey = std::pair<std::string, int64_t>;  // Job and attempt.
  struct Gang;
  struct Task;
  struct Process;

  void StartProcess(Process* process);
  void Kill(Process* process);
  void Connect(Process* process);
  void Disconnect(Process* process);
  void Beat(Process* process, int64_t life);
  void SendUp(Process* process, WorkerMessage message);
  void DeliverUp(int64_t connection, const WorkerMessage& message);
  void Handle(Process* process, const CoordinatorMessage& message);
  void OnRegistered(Process* process);
  void OnLaunch(Process* process, const LaunchTask& launch);
  void OnStopAt(Process* process, const StopTaskAt& stop);
  void OnCheckpointAt(Process* process, const CheckpointAt& checkpoint);
  void OnCommitted(Process* process, const CheckpointIsCommitted& committed);
  void OnAcknowledge(Process* process, const Acknowledge& acknowledge);
  Task* Find(Process* process, const TaskKey& key, int64_t generation);
  void Drop(Process* process, const TaskKey& key);
  void Step(const TaskKey& key);
  bool CanStep(Gang* gang);
  void WriteShards(Gang* gang);
  void FinishStep(Gang* gang);
  void EndGang(Gang* gang, const std::string& suspect);
  void FailTask(Process* process, Task* task);
  void FailProgram(Gang* gang);
  void SendShard(Process* process, Task* task, int64_t step);
  void SendUnanswered(Process* process, Task* task);
  void SendMetrics(Process* process, Task* task);
  Process* FindProcess(const std::string& id);
  void Cut(Process* process);
  void CutControl(Process* process, int64_t ms);
  void ExitTask(Process* process, Task* task);
  void Heal(Process* process);
  void Lose(Process* process, int64_t away_ms);

  Storm* const storm_;
  const int devices_each_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<TaskKey, std::shared_ptr<Gang>> gangs_;
  std::map<int64_t, Process*> connections_;
  std::map<std::string, StoredIndex> shards_;  // By URI.
  int64_t next_connection_ = 1;
  uint64_t next_incarnation_ = 1;
  bool has_lost_ids_ = false;
  bool one_is_gone_ = false;  // For good.
};

}  // namespace xlad::simulation
