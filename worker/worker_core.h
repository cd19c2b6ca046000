// The worker's state machine: its tasks and its connection to the coordinator.
//
// Pure logic: events carry the time, tasks are made through an interface, and the effects are returned as actions,
// which the caller performs in order. The daemon (`worker/grpc_worker_main.cc`) and the simulation drive the same
// class. Used by one thread at a time.
//
// Tasks continue without the coordinator: while it cannot be reached, metrics and ends of tasks are kept, and they are
// sent after the next registration.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {

// A task of a job or of a session. Its destructor ends the task and may take as long as a step.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Lease(int64_t lease_until_step) = 0;
  virtual bool StopAt(int64_t step) = 0;  // Returns false if the step has begun.
  virtual void Abort(const collectives::Failure& failure) = 0;
  virtual void Command(const SessionCommand&) {}  // Only for sessions; commands come in order.
  virtual int64_t finished_steps() const = 0;
  virtual int64_t begun_steps() const = 0;
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
};
struct TaskStepped {
  TaskKey key;
  StepMetrics metrics;
};
struct TaskHasStopped {
  TaskKey key;
  int64_t step = 0;
};
struct TaskHasFinished {
  TaskKey key;
};
struct TaskHasFailed {
  TaskKey key;
  int64_t step = 0;
  collectives::Failure failure;
};
struct CommandIsDone {
  TaskKey key;
  int64_t sequence = 0;
};
using Event = std::variant<Connected, Disconnected, Tick, StopRequested, CoordinatorMessage, TaskIsReady, TaskStepped,
                           TaskHasStopped, TaskHasFinished, TaskHasFailed, CommandIsDone>;

// Actions.
struct Send {
  WorkerMessage message;
};
struct DropTask {
  std::unique_ptr<Task> task;
};  // Destroy it on a thread that may block.
struct Exit {
  absl::Status status;
};
using Action = std::variant<Send, DropTask, Exit>;
using Actions = std::vector<Action>;

struct WorkerCoreOptions {
  RegisterWorker identity;  // Without `running`.
  int64_t heartbeat_ms = 500;
  int64_t metrics_ms = 100;  // Metrics are sent together, once per this interval.
  int64_t grace_ms = 30'000;
};

// It has more than 25 methods because it has one handler for each kind of event and message.
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
    std::unique_ptr<Task> task;
    bool ready = false;
    bool started = false;
    std::deque<StepMetrics> metrics;   // Those that are not acknowledged yet.
    size_t sent_metrics = 0;           // How many of `metrics` have been sent on this connection.
    int64_t received = 0, done = 0;    // For sessions: the sequence of the last command received, and of the last done.
    std::optional<WorkerMessage> end;  // Stopped, finished or failed; sent on each connection until the coordinator
                                       // has recorded it.
  };

  void On(const Connected&);
  void On(const Disconnected&);
  void On(const Tick&);
  void On(const StopRequested&);
  void On(const CoordinatorMessage& message);
  void On(const TaskIsReady& event);
  void On(const TaskStepped& event);
  void On(const TaskHasStopped& event);
  void On(const TaskHasFinished& event);
  void On(const TaskHasFailed& event);
  void On(const CommandIsDone& event);

  void OnRegistered();
  void OnLaunch(const LaunchTask& launch);
  void OnStopAt(const StopTaskAt& message);
  void OnAbort(const AbortTask& message);
  void OnAcknowledge(const Acknowledge& message);
  void OnSession(const SessionCommand& command);
  void Lease(const TaskKey& key, int64_t lease_until_step, bool start);

  TaskRecord* Find(const TaskKey& key);
  // Removes the task. If it has not ended in good order, `why` is the reason, and the task is aborted.
  void Forget(const TaskKey& key, const std::string& why);
  void SendMessage(WorkerMessage message);
  void SendReady(const TaskKey& key);
  void SendDone(const TaskKey& key, int64_t sequence);
  void SendMetrics(const TaskKey& key, TaskRecord* record);
  void End(const TaskKey& key, WorkerMessage message);
  void FillRunning(google::protobuf::RepeatedPtrField<RunningTask>* running) const;

  const WorkerCoreOptions options_;
  const MakeTask make_task_;
  std::map<TaskKey, TaskRecord> tasks_;
  bool connected_ = false;
  bool registered_ = false;  // Whether the coordinator has answered the registration on this connection.
  int64_t now_ns_ = 0;
  int64_t next_heartbeat_ns_ = 0;
  int64_t next_metrics_ns_ = 0;
  std::optional<int64_t> drain_until_ns_;
  Actions actions_;
};

}  // namespace xlad::worker
