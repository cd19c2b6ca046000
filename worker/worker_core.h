// The worker's state machine: its tasks and its connection to the coordinator.
//
// This class does no I/O: the caller passes events and the time, tasks are made through an interface, and the effects
// are returned as actions, which the caller performs in order. The daemon (`worker/grpc_worker_main.cc`) and the
// simulation drive the same class. Used by one thread at a time.
//
// Tasks continue while the coordinator cannot be reached: the metrics and ends of tasks are kept and sent after the
// next registration.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "worker/process_end.h"
#include "worker/task_lease.h"

namespace xlad::worker {

// A task of a job or of a session. Calls do not block; its destructor ends the task and returns when it has ended.
class Task {
 public:
  virtual ~Task() = default;
  // Only for sessions: all of their workers are ready. May be repeated.
  virtual void Start(const StartTask&) {}
  // The task may begin the steps before this one. The step may be earlier than that of the last call.
  virtual void Lease(int64_t lease_until_step) = 0;
  // Stops the task before `step`. Answered by TaskAnsweredStop; if it is accepted, TaskHasStopped follows.
  virtual void StopAt(int64_t step) = 0;
  virtual void Abort(const collectives::Failure& failure) = 0;
  // Not for sessions. Saves the state before `step`. Answered by TaskAnsweredCheckpoint; if it is accepted,
  // TaskWroteShard or TaskFailedToSave follows.
  virtual void CheckpointAt(int64_t step) {}
  // Not for sessions. The checkpoint of the state before `step` is committed.
  virtual void CheckpointIsCommitted(int64_t step) {}
  // Not for sessions. Runs the code of another executable with the same program, as soon as it is loaded.
  virtual void ReplaceCode(const std::string& executable_digest) {}
  virtual int64_t finished_steps() const = 0;
  // The workers of the attempt whose machines do not answer.
  virtual std::vector<SilentPeer> silent_peers() const { return {}; }
};

// Identifies an attempt of a job.
struct TaskKey {
  std::string job_id;
  int64_t attempt = 0;
  friend auto operator<=>(const TaskKey&, const TaskKey&) = default;
};

// Events.
struct Connected {};      // A stream to the coordinator was opened.
struct Disconnected {};   // The stream ended.
struct Tick {};           // Time has passed; sent about every 50 ms.
struct StopRequested {};  // The process received SIGTERM.
struct TaskIsReady {
  TaskKey key;
  std::string session_address;  // The address at which the task serves a session (TaskReady), or empty if it does not.
  std::string session_authority;  // As in TaskReady.
};
struct TaskStepped {
  TaskKey key;
  StepMetrics metrics;
};
struct TaskAnsweredStop {
  TaskKey key;
  int64_t step = 0;
  bool accepted = false;  // False if the task has begun `step` or has ended. `current` is the number of begun steps.
  int64_t current = 0;
};
struct TaskAnsweredCheckpoint {
  TaskKey key;
  int64_t step = 0;
  bool accepted = false;  // False if the task has begun `step` or has ended. `current` is the number of begun steps.
  int64_t current = 0;
};
struct TaskWroteShard {
  TaskKey key;
  int64_t step = 0;
  CheckpointShard shard;
};
struct TaskFailedToSave {
  TaskKey key;
  int64_t step = 0;
  absl::Status error;
  bool must_be_stored = false;  // See ShardFailed.
};
struct TaskHasStopped {
  TaskKey key;
  int64_t step = 0;
};
struct TaskHasFinished {
  TaskKey key;
  RunReport report = {};
};
struct TaskHasFailed {
  TaskKey key;
  int64_t step = 0;
  collectives::Failure failure;
};
struct TaskTraced {
  TaskKey key;
  TaskTrace trace;
};
struct ClockSampled {  // The coordinator has answered a clock probe.
  ClockSample sample;
};
struct TaskHasExited {  // The last event of a task that has its own process. The task's devices are free.
  TaskKey key;
  ProcessEnd end;
};
using Event = std::variant<Connected, Disconnected, Tick, StopRequested, CoordinatorMessage, TaskIsReady, TaskStepped,
                           TaskAnsweredStop, TaskAnsweredCheckpoint, TaskWroteShard, TaskHasStopped, TaskHasFinished,
                           TaskTraced, ClockSampled, TaskHasFailed, TaskHasExited, TaskFailedToSave>;

// Actions.
struct Send {
  WorkerMessage message;
};
struct DropTask {
  std::unique_ptr<Task> task;
};  // Destroy the task on a thread that may block.
struct Exit {
  absl::Status status;
  bool work_moved = false;  // Tasks were stopped and their state is saved: they continue elsewhere.
};
using Action = std::variant<Send, DropTask, Exit>;
using Actions = std::vector<Action>;

struct WorkerCoreOptions {
  RegisterWorker identity;  // `running` is not set.
  int64_t heartbeat_ms = 500;  // The time between two heartbeats.
  int64_t metrics_ms = 100;  // Metrics are sent together, once per this interval.
  int64_t grace_ms = 30'000;  // How long draining may take.
  int64_t max_kept_metrics = 1'000'000;  // A task waits when this many of its steps are not acknowledged.
  int64_t memory_limit_bytes = 0;        // The limit for each attempt's process, for error messages; 0: no limit.
  // Whether every task ends with TaskHasExited, some time after it is dropped. Its devices are busy until then.
  bool tasks_have_processes = false;
};

// The class has more than 25 methods because it has one handler for each kind of event and message.
class WorkerCore {
 public:
  // Starts a task, which reports progress by events.
  using MakeTask = std::function<std::unique_ptr<Task>(const LaunchTask& launch)>;

  WorkerCore(const WorkerCoreOptions& options, MakeTask make_task)
      : options_(options), make_task_(std::move(make_task)) {}

  Actions Handle(Event event, int64_t now_ns);

  // Ends every task because the process ends; the tasks are in the actions.
  Actions Shutdown();

 private:
  struct TaskRecord {
    LaunchTask launch;
    std::unique_ptr<Task> task;  // Null while the launch waits for devices.
    bool ready = false;
    bool started = false;
    bool exited = false;              // The task's process has ended.
    std::deque<StepMetrics> metrics;  // The metrics that have not been acknowledged yet.
    size_t sent_metrics = 0;          // How many of `metrics` have been sent on this connection.
    TaskLease lease;
    int64_t passed_lease = -1;  // The lease of the task itself, which may be shorter (max_kept_metrics).
    std::string session_address, session_authority;
    std::deque<TaskTrace> traces;  // The latest traces that have not been sent.
    int64_t sent_samples = 0;      // The number of all clock samples that were taken before the last trace was sent.
    std::map<int64_t, CheckpointShard> shards;  // Keyed by step: the shards that are not in a committed checkpoint.
    std::set<int64_t> unsent_shards;            // The steps of those that have not been sent on this connection.
    // The latest failure if no shard has been stored since; sent on each connection, after the shards.
    std::optional<WorkerMessage> shard_failed;
    bool shard_failed_is_sent = false;
    // Stopped, finished, failed or exited; sent on each connection until the coordinator has recorded it.
    std::optional<WorkerMessage> end;
    bool end_is_sent = false;  // Whether `end` has been sent on this connection.
  };

  void On(const Connected&);
  void On(const Disconnected&);
  void On(const Tick&);
  void On(const StopRequested&);
  void On(const CoordinatorMessage& message);
  void On(const TaskIsReady& event);
  void On(const TaskStepped& event);
  void On(const TaskAnsweredStop& event);
  void On(const TaskAnsweredCheckpoint& event);
  void On(const TaskWroteShard& event);
  void On(const TaskFailedToSave& event);
  void On(const TaskTraced& event);
  void On(const ClockSampled& event);
  void On(const TaskHasStopped& event);
  void On(const TaskHasFinished& event);
  void On(const TaskHasFailed& event);
  void On(const TaskHasExited& event);

  void OnRegistered(const Registered& message);
  // Returns false for a message of an earlier coordinator, or about an earlier generation of a task.
  bool IsCurrent(const CoordinatorMessage& message);
  void OnLaunch(const LaunchTask& launch);
  void OnStopAt(const StopTaskAt& message);
  void OnCheckpointAt(const CheckpointAt& message);
  void OnCommitted(const CheckpointIsCommitted& message);
  void OnReplaceCode(const ReplaceCode& message);
  void OnAbort(const AbortTask& message);
  void OnAcknowledge(const Acknowledge& message);
  void OnStart(const StartTask& message);
  void Lease(const TaskKey& key, int64_t lease_until_step);
  void PassLease(TaskRecord* record);
  // Starts the launches for which there are free devices. The devices of a task are not free until its process has
  // ended. If no process is about to end, starts all launches, because waiting cannot free devices. A launch with an
  // owner always waits for the tasks of other owners: the coordinator has ended them, or will when it learns of them.
  // A launch of a later generation of an attempt always waits for the process of the earlier one.
  void StartTasks();
  // Whether a process of a different owner than the launch's is running or has not yet ended.
  bool RunsOthers(const LaunchTask& launch) const;
  void RequestDrain();

  // Whether a process that is about to end has sent this event, which is not its last one. Its task is forgotten, but a
  // launch that waits may have the same key.
  template <typename OneEvent>
  bool IsOfDroppedTask(const OneEvent& event) const {
    if constexpr (requires { event.key; } && !std::is_same_v<OneEvent, TaskHasExited>) {
      return ending_.contains(event.key);
    }
    return false;
  }

  TaskRecord* Find(const TaskKey& key);
  // Removes the task. If `why` is not empty, also aborts it with this reason.
  void Forget(const TaskKey& key, const std::string& why);
  void SendMessage(WorkerMessage message);
  void SendReady(const TaskRecord& record);
  // Sends the metrics, up to a number that waits for acknowledgements, and the shards that may be sent then.
  void SendMetrics(TaskRecord* record);
  void SendTraces(TaskRecord* record);
  // Sends the shards whose metrics have been sent, and then the failure to store one.
  void SendShards(TaskRecord* record);
  // Sends the end of the task when all of its metrics and shards have been sent.
  void SendEnd(TaskRecord* record);
  void SendExits();
  void End(TaskRecord* record, WorkerMessage message);
  void FillRunning(google::protobuf::RepeatedPtrField<RunningTask>* running) const;

  const WorkerCoreOptions options_;
  const MakeTask make_task_;
  std::map<TaskKey, TaskRecord> tasks_;
  struct Ending {
    int devices = 0;
    std::optional<std::string> owner;
    int64_t generation = 0;
    // For the report to the coordinator when the process has ended. Only if the task was aborted and may have written
    // files of a checkpoint to a shared folder: the coordinator then removes them.
    std::optional<AttemptExited> exited;
  };
  std::map<TaskKey, Ending> ending_;  // Forgotten tasks whose processes have not ended.
  std::vector<WorkerMessage> exits_;  // Reports of forgotten tasks that wait for the registration.
  int64_t term_ = 0;               // The term of the newest coordinator.
  bool reports_exits_ = false;     // Whether the coordinator supports AttemptExited.
  bool sends_traces_ = false;      // Whether the coordinator supports TaskTrace.
  bool reports_shard_failures_ = false;  // Whether the coordinator supports ShardFailed.
  std::deque<ClockSample> samples_;      // The latest clock samples.
  int64_t num_samples_ = 0;              // The number of all clock samples so far.
  bool work_moved_ = false;
  bool connected_ = false;
  bool registered_ = false;  // Whether the coordinator has answered the registration on this connection.
  int64_t now_ns_ = 0;
  int64_t next_heartbeat_ns_ = 0;
  int64_t next_metrics_ns_ = 0;
  std::optional<int64_t> drain_until_ns_;
  Actions actions_;
};

}  // namespace xlad::worker
