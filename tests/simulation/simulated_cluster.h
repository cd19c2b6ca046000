// A whole cluster in one thread on a virtual clock: one coordinator, many workers, a network that delays and cuts, a
// log that fails, processes that die. Everything follows from a seed, so that a failure replays exactly.
//
// Real: CoordinatorCore, WorkerCore, the job's fold. Simulated: streams, builds, and tasks, which step in lockstep as
// the collectives of a real one would make them.
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
#include "service/coordinator.h"
#include "worker/worker_core.h"

namespace xlad::simulation {

class SimulatedCluster {
 public:
  SimulatedCluster(uint64_t seed, int workers, int devices_each);
  ~SimulatedCluster();

  // Lets virtual time pass, 10 ms at a time.
  void Run(int64_t ms);

  // Returns the job's id, or empty where it was not acknowledged (the log failed, the coordinator is down).
  std::string Submit(const std::string& key, int64_t devices, int64_t steps, int attempts);

  // Opens a session and holds it until the coordinator or ReleaseSessions ends that. Empty as above.
  std::string OpenSession(const std::string& key, int64_t devices);
  // One load of a program without parameters, and one call of it. False where the session cannot be used now.
  bool UseSession(const std::string& id);
  void ReleaseSessions();

  // Faults.
  void KillCoordinator();
  void StartCoordinator();
  void KillWorker(int w);
  void StartWorker(int w);
  void CutConnection(int w);   // The stream breaks; both sides notice later.
  void DrainWorker(int w);     // SIGTERM.
  void FailNextAppends(int n) { store_.fail_next_appends = n; }
  bool coordinator_is_up() const { return coordinator_ != nullptr; }
  bool worker_is_up(int w) const { return workers_[w].core != nullptr; }

  service::CoordinatorCore* coordinator() { return coordinator_.get(); }
  const service::MemoryJobStore& store() const { return store_; }
  // Grows with everything that happens; equal for equal seeds.
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  struct Gang;
  class SimulatedTask;
  struct WorkerProcess {
    std::unique_ptr<worker::WorkerCore> core;
    uint64_t incarnation = 0;
    int64_t connection = 0;        // 0: none.
    int64_t connect_at_ns = 0;
    bool drained = false;
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
  void Perform(const service::Actions& actions);
  void PerformOf(int w, worker::Actions actions);
  void HandleOf(int w, worker::Event event);
  void StepGangs();
  void LeaveGangs(int w, const std::string& why);

  ManualClock clock_;
  std::unique_ptr<Random> random_;
  std::unique_ptr<Random> coordinator_random_;
  service::MemoryJobStore store_;
  std::unique_ptr<service::JobLog> log_;
  std::unique_ptr<service::CoordinatorCore> coordinator_;
  std::vector<WorkerProcess> workers_;
  const int devices_each_;
  int64_t next_connection_ = 1;
  std::map<int64_t, int> connections_;            // To workers.
  std::vector<std::string> held_sessions_;        // By the coordinator of now.
  std::map<int64_t, int64_t> last_due_ns_;        // By connection and direction: messages stay in order.
  std::deque<Message> messages_;                  // By due time.
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<Gang>> gangs_;  // By job and attempt.
  uint64_t trace_hash_ = 0;
};

}  // namespace xlad::simulation
