// The workers of a storm: processes that follow the protocol of proto/worker.proto, their connections, and the attempts
// that they run together. Processes, paths and tasks can fail. Used by one thread.
//
// The tasks of an attempt step in lockstep, as collectives force them to. Their state has checkable contents
// (log_model.h): if a task starts from a wrong state, its shards and losses are wrong. A shard also names its attempt,
// which shows whether that attempt was fenced.
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

inline constexpr char kQuick[] = "quick ";  // The names of executables with quickly compiled code begin with this.

// The class has more than 25 methods: one for each message of the protocol and each fault.
class StormWorkers {
 public:
  // Successive workers are on one host; all hosts have about the same number of workers.
  StormWorkers(Storm* storm, int workers, int devices_each, int hosts);
  ~StormWorkers();

  void Start();
  // Closes all connections, because the coordinator's process has ended or no longer serves.
  void OnCoordinatorGone();
  // Delivers a message of the coordinator. It is lost if the connection is closed.
  void Deliver(int64_t connection, const CoordinatorMessage& message);
  void Close(int64_t connection);
  // Stores the index of a checkpoint, from the shards that were written.
  service::Checkpoint StoreIndex(const CheckpointIndex& index);

  std::string AnyId();
  // Whether some id will never be used again, because its process never comes back or came back under another id.
  bool HasLostIds() const { return has_lost_ids_; }

  // Whether the worker's process and paths have worked for so long that it cannot count as lost.
  bool IsWell(const std::string& id) const;
  // The incarnation of the running process with this id, or 0.
  uint64_t IncarnationOf(const std::string& id) const;
  // Whether there is no process with this id now, and the coordinator has been notified.
  bool HasDied(const std::string& id) const;
  // Whether some other hosts and the one of this worker do not reach each other.
  bool HasCutHost(const std::string& id) const;
  // The time at which the last stopped process continues.
  int64_t StoppedUntilNs() const;
  // Reports tasks of attempts that have ended.
  void CheckEnd() const;
  // Must be called regularly while the coordinator responds. Reports tasks that keep shards of committed checkpoints,
  // and tasks of started attempts whose workers do not know the start.
  void CheckNotices();
  // The number of steps that an attempt has finished, or -1 if no worker has received its launch.
  int64_t FinishedSteps(const std::string& job, int64_t attempt) const;
  // Must be called after each batch of the coordinator. Reports placements on workers that the attempt should not have
  // taken.
  void CheckPlacements();

  // Whether the worker runs now and can be reached by the coordinator and by its peers.
  bool IsReachable(const std::string& id) const;
  // Closes the connection if it is still open. If `kill` is set, also kills the worker, which restarts later.
  void Break(int64_t connection, bool kill);
  // Called after the start of a coordinator. Cuts the path of `late` at once, and the path of `lost` about a second
  // later, when it has usually registered. `late` comes back after `lost` counts as lost, and before `lost` comes back.
  void CutDuringAdoption(const std::string& late, const std::string& lost);
  // Injects one fault of a worker, a rack or a path, or none if the storm does not have the chosen kind of fault.
  void InjectFault();
  // Injects one fault of the storage of checkpoints.
  void InjectDiskFault();
  int64_t misreads() const { return misreads_; }
  // Ends all faults, except that stopped processes continue by themselves and one process may never come back.
  void Repair();

 private:
  using TaskKey = std::pair<std::string, int64_t>;  // The id of a job, and the number of its attempt.
  // The oldest job that waits only because of other owners, and the later attempts that were placed since then.
  struct Overtaken {
    std::string job;  // Its id and its mesh.
    std::set<std::string> workers;  // Those that took work at that time.
    std::set<TaskKey> by;
  };
  struct Gang;
  struct Task;
  struct Process;

  void StartProcess(Process* process);
  void Kill(Process* process);
  void Connect(Process* process);
  void Disconnect(Process* process);
  WorkerMessage RegistrationOf(const Process& process) const;
  void RepeatWithWrongSender(const Process& process, const WorkerMessage& message);
  void RegisterAgain(const Process& process);
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
  void OnReplaceCode(Process* process, const ReplaceCode& message);
  static bool RunsOthers(const Process& process, const LaunchTask& launch);
  void StartWaiting(Process* process);
  Task* Find(Process* process, const TaskKey& key, int64_t generation);
  void Drop(Process* process, const TaskKey& key);
  void Step(const TaskKey& key);
  bool CanStep(Gang* gang);
  void ReadState(const std::string& id, const TaskKey& key, int64_t generation);
  bool FindsDamage(const Process& process, const Task& task);
  void FailToRead(Process* process, Task* task);
  void WriteShards(Gang* gang);
  void WriteShard(Process* process, Task* task, bool is_end);
  void ReportUnstored(Process* process, Task* task, bool is_end);
  void OnWritten(Process* process, Task* task, int64_t step);
  void DamageNewestCheckpoint();
  void Misread();
  void ExitTaskSoon(const TaskKey& key);
  static bool HasSaved(const Task& task, const Gang& gang);
  void FinishStep(Gang* gang);
  void CheckCode(Gang* gang);
  void EndGang(Gang* gang, const std::string& suspect);
  void FailTask(Process* process, Task* task);
  void FailProgram(Gang* gang);
  void SendShard(Process* process, Task* task, int64_t step);
  void SendUnanswered(Process* process, Task* task);
  void SendMetrics(Process* process, Task* task);
  Process* FindProcess(const std::string& id);
  bool InjectHostFault();
  void CutHosts();
  void LoseHost();
  void LosePower(Process* process);
  bool AreCut(const Process& a, const Process& b) const;
  bool IsApart(const Gang& gang) const;
  void ReportSilence(const Process& process, const Task& task, RunningTask* report);
  void CheckHosts(const service::Job& job);
  void CheckPacking(const service::Job& job);
  void CheckOvertaking(const std::vector<const service::Job*>& placed);
  void Cut(Process* process);
  void CutControl(Process* process, int64_t ms);
  void ExitTask(Process* process, Task* task);
  void Heal(Process* process);
  void Lose(Process* process, int64_t away_ms);

  Storm* const storm_;
  const int devices_each_;
  const int hosts_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<TaskKey, std::shared_ptr<Gang>> gangs_;
  std::map<int64_t, Process*> connections_;
  std::map<std::string, StoredIndex> shards_;  // Shards by URI.
  int64_t next_connection_ = 1;
  uint64_t next_incarnation_ = 1;
  int64_t misreads_ = 0;
  int64_t next_misreads_ns_ = 0;  // No worker misreads before this time.
  int misreading_host_ = 0;  // The only host of which workers misread.
  // Pairs of hosts, the lower number first, whose workers do not reach each other, and since when.
  std::map<std::pair<int, int>, int64_t> cut_hosts_;
  std::map<std::string, int64_t> seen_attempts_;  // The newest attempt seen by CheckPlacements, by job.
  Overtaken overtaken_;
  bool has_lost_ids_ = false;
  bool has_old_versions_ = false;  // Whether some processes are of a version that does not replace code.
  bool one_is_gone_ = false;  // Whether one process never comes back.
};

}  // namespace xlad::simulation
