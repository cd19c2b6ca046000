// The worker's brain: a state machine over its tasks and its connection to the coordinator.
//
// Pure logic: time comes with events, tasks through an interface, and what is to be sent is returned as actions, to be
// carried out in order. The daemon (grpc_worker_daemon.cc) and the simulation drive the same object. Used by one thread
// at a time.
//
// Tasks do not need the coordinator to go on: while it is away, metrics and ends are kept and sent when it is back.
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

namespace xlad::worker {

// A task as the worker sees it. Destroying it drops the task and may take a while.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Lease(int64_t lease_until_step) = 0;
  virtual bool StopAt(int64_t step) = 0;  // False where a later step has begun.
  virtual void Abort(const collectives::Failure& failure) = 0;
  virtual void Command(const SessionCommand&) {}  // Of a session; in order.
  virtual int64_t finished_steps() const = 0;
  virtual int64_t begun_steps() const = 0;
};

// Which start of which job.
struct TaskKey {
  std::string job_id;
  int64_t attempt = 0;
  friend auto operator<=>(const TaskKey&, const TaskKey&) = default;
};

// What happens.
struct Connected {};      // A stream to the coordinator is open.
struct Disconnected {};   // It has ended.
struct Tick {};           // Some time has passed; every 50 ms or so.
struct StopRequested {};  // SIGTERM.
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

// What is to be done.
struct Send {
  WorkerMessage message;
};
struct DropTask {
  std::unique_ptr<Task> task;
};  // Destroy it, where waiting does no harm.
struct Exit {
  absl::Status status;
};
using Action = std::variant<Send, DropTask, Exit>;
using Actions = std::vector<Action>;

struct WorkerCoreOptions {
  RegisterWorker identity;  // Without `running`.
  int64_t heartbeat_ms = 500;
  int64_t metrics_ms = 100;  // Metrics wait this long, to be sent together.
  int64_t grace_ms = 30'000;
};

class WorkerCore {
 public:
  // Starts a task; it tells how it goes by events.
  using MakeTask = std::function<std::unique_ptr<Task>(const LaunchTask& launch)>;

  WorkerCore(const WorkerCoreOptions& options, MakeTask make_task)
      : options_(options), make_task_(std::move(make_task)) {}

  Actions Handle(Event event, int64_t now_ns);

  // Ends every task, for when the process ends; the tasks are in the actions.
  Actions Shutdown();

 private:
  struct TaskRecord {
    LaunchTask launch;
    std::unique_ptr<Task> task;
    bool ready = false;
    bool started = false;
    std::deque<StepMetrics> metrics;   // Not acknowledged yet.
    size_t sent_metrics = 0;           // Of these, on this connection.
    int64_t commanded = 0, done = 0;   // Of a session: the last command that came, the last that is done.
    std::optional<WorkerMessage> end;  // Stopped, finished or failed: sent again until the task is forgotten.
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
  // Out of the worker: `why` is empty where it ended in good order.
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
  bool registered_ = false;  // On this connection.
  int64_t now_ns_ = 0;
  int64_t next_heartbeat_ns_ = 0;
  int64_t next_metrics_ns_ = 0;
  std::optional<int64_t> drain_until_ns_;
  Actions actions_;
};

}  // namespace xlad::worker
