// A complete cluster in one thread on a virtual clock: one coordinator and many workers. The network delays messages
// and breaks connections, appends to the job log fail, and processes are killed. A seed determines everything, so a
// failure can be replayed exactly. Used by one thread.
//
// GroupCommit, CoordinatorCore and WorkerCore are the real classes. Streams, builds and tasks are simulated; the tasks
// of an attempt step in lockstep, as collectives would force them to.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "service/group_commit.h"
#include "worker/worker_core.h"

namespace xlad::simulation {

// The class has more than 25 methods: one for each kind of fault and of client request, and those that deliver
// messages.
class SimulatedCluster {
 public:
  SimulatedCluster(uint64_t seed, int workers, int devices_each);
  ~SimulatedCluster();

  // Advances the virtual clock by `ms`, in steps of 10 ms, and handles the events of this time.
  void Run(int64_t ms);

  // Returns the job's id, or an empty text if the job was not acknowledged.
  std::string Submit(const std::string& key, int64_t devices, int64_t steps, int attempts);

  // Opens a session and holds it until ReleaseSessions is called, or the coordinator dies or stops serving. Returns an
  // empty text if the session was not acknowledged.
  std::string OpenSession(const std::string& key, int64_t devices);
  // Requests the address of the session's first worker. Returns false if the session cannot be used now.
  bool UseSession(const std::string& id);
  void ReleaseSessions();

  // --- Faults.
  void KillCoordinator();
  void StartCoordinator();
  void KillWorker(int w);
  void StartWorker(int w);
  void CutConnection(int w);  // Breaks the worker's stream. The coordinator is notified later.
  void DrainWorker(int w);    // Has the same effect as SIGTERM.
  // Makes the next n appends fail. If n is odd, they write their batches nevertheless.
  void FailNextAppends(int n) {
    store_.fail_next_appends = n;
    store_.failures_are_ambiguous = n % 2 == 1;
  }
  bool coordinator_is_up() const { return coordinator_ != nullptr; }
  // Null while no coordinator runs, or its log cannot be opened or written.
  service::CoordinatorCore* coordinator() { return coordinator_ == nullptr ? nullptr : coordinator_->coordinator(); }
  JobStatus StatusOf(const std::string& job) {
    return coordinator()->jobs().Status(service::JobId(job)).value_or(JobStatus());
  }
  bool worker_is_up(int w) const { return workers_[w].core != nullptr; }

  const service::MemoryJobStore& store() const { return store_; }
  // How often a task started on a worker while the process of a task of another owner still existed there.
  int64_t overlaps() const { return overlaps_; }
  // How often a task waited for the end of such a process.
  int64_t handovers() const { return handovers_; }
  // A hash of the messages of the workers, of the starts of processes and of their faults; equal for equal seeds.
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  struct Gang;
  class SimulatedTask;
  struct WorkerProcess {
    std::unique_ptr<worker::WorkerCore> core;
    uint64_t incarnation = 0;
    int64_t connection = 0;  // 0 if the worker is not connected.
    int64_t connect_at_ns = 0;
    bool drained = false;
    // The owners of the tasks whose processes exist. A process ends some time after its task was dropped.
    std::map<worker::TaskKey, std::string> processes;
  };
  struct Message {
    int64_t due_ns;
    int64_t connection;
    std::function<void()> deliver;
  };

  void Note(const std::string& what);
  void Later(int64_t connection, int64_t delay_ms, std::function<void()> deliver);
  void Deliver();
  void Connect(int w);
  void Disconnect(int w);
  // Handles an event on the coordinator and commits it. Returns false if the coordinator does not serve or stops
  // serving.
  bool Do(const std::function<void(service::CoordinatorCore&)>& handle, bool tick = false);
  void TryToServe();
  void Perform(const service::Actions& actions);
  void PerformOf(int w, worker::Actions actions);
  void HandleOf(int w, worker::Event event);
  std::unique_ptr<worker::Task> StartTask(int w, const LaunchTask& launch);
  void EndProcess(int w, const worker::TaskKey& key);
  void StepGangs();
  void LeaveGangs(int w, const std::string& why);

  ManualClock clock_;
  std::unique_ptr<Random> random_;
  std::unique_ptr<Random> coordinator_random_;
  service::MemoryJobStore store_;
  std::unique_ptr<service::GroupCommit> coordinator_;
  std::vector<WorkerProcess> workers_;
  const int devices_each_;
  int64_t next_connection_ = 1;
  std::map<int64_t, int> connections_;      // Workers by connection.
  std::vector<std::string> held_sessions_;  // Sessions of the current coordinator.
  // The time of the last message by connection and direction, so that messages stay in order.
  std::map<int64_t, int64_t> last_due_ns_;
  std::deque<Message> messages_;                                            // Events by due time.
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<Gang>> gangs_;  // Gangs by job and attempt.
  uint64_t trace_hash_ = 0;
  int64_t overlaps_ = 0, handovers_ = 0;
};

}  // namespace xlad::simulation
