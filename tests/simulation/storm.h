// A cluster in a fault storm: the real coordinator and its real SQLite log, with a disk, a network and workers that
// fail, event by event on a virtual clock. A seed determines everything. Used by one thread.
//
// Real parts: GroupCommit with the coordinator's state machines, and the SQLite log. Simulated parts: disk, network,
// builds, storage of checkpoints, clients (storm_clients.h) and workers (storm_workers.h). The workers follow the
// protocol of proto/worker.proto, and the states of their jobs have checkable contents (log_model.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "service/group_commit.h"
#include "tests/simulation/log_model.h"
#include "tests/simulation/simulated_disk.h"

namespace xlad::simulation {

class StormClients;
class StormWorkers;
using Core = std::remove_pointer_t<decltype(std::declval<service::GroupCommit&>().coordinator())>;

// The kinds of faults. A storm has most but not all kinds, because one kind can hide the effects of another (Groce et
// al., "Swarm Testing", ISSTA 2012).
enum class StormFault {
  kDeath,        // The coordinator is killed.
  kPause,        // The coordinator is stopped.
  kDisk,         // The disk of the coordinator fails.
  kWorkerDeath,  // A worker is killed.
  kCut,          // A path is cut.
  kWorkerPause,  // A worker is stopped.
  kLeaving,      // A worker drains itself and exits.
  kTaskDeath,    // The process of one task ends.
  kRack,         // Several workers die at once.
  kDamage,       // A committed checkpoint is damaged.
  kMisread,      // One worker finds damage in all checkpoints that it reads, although they are intact.
  kWorkerDisk,   // The place where a worker writes its parts of checkpoints is full or slow.
  kIndexDisk,    // The place where the coordinator stores indexes of checkpoints is full.
  kHostDeath,    // All workers of a host end at once, and no one is notified.
  kHostCut,      // The workers of two hosts do not reach each other.
  kWrongSender,  // A worker sends messages about another's attempt, or a second process has the id of a worker.
  kCount,
};

// The kind of storm decides which faults are most frequent. Many errors occur only after several faults within
// milliseconds, which rarely happen by chance.
enum class StormKind {
  kMixed,  // All kinds of faults.
  kLong,   // Long jobs whose tasks die often, with limits of attempts.
  kStops,  // Long jobs that are stopped: drains, changes of the mesh, and several workers that die at once.
};

struct StormOptions {
  uint64_t seed = 0;
  int workers = 5;
  int devices_each = 2;
  int hosts = 0;  // If 0, the seed chooses 1 to 3.
  int jobs = 6;
  int64_t max_devices = 8;     // The devices of the largest job. By default, it fits if one worker is lost.
  int64_t storm_ms = 20'000;   // Faults occur during this time. Then all faults are repaired.
  int64_t limit_ms = 400'000;  // By then, all jobs must have ended or wait for lost workers.
  bool trace = false;          // Whether every event is printed.
};

struct StormResult {
  std::vector<std::string> violations;
  int64_t attempts = 0, checkpoints = 0, crashes = 0, disk_faults = 0, events = 0;
  int64_t misreads = 0;  // The number of findings of damage in intact checkpoints.
  int64_t virtual_ms = 0;
  double longest_turn_ms = 0;  // The longest time in which the coordinator handled one batch.
  uint64_t trace_hash = 0;     // A hash of the trace; equal for equal options.
  std::map<std::string, int64_t> records;  // The number of records of each kind in the log.
};

// The class has more than 25 methods: one for each kind of event and fault.
class Storm {
 public:
  explicit Storm(const StormOptions& options);
  ~Storm();
  StormResult Run();

  // --- For the workers and clients.
  int64_t NowNs() const { return clock_.NowNs(); }
  Random& random() { return *random_; }
  int64_t Between(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_->Below(high - low + 1)); }
  void After(int64_t delay_ms, std::function<void()> event);
  // Sends an event to the coordinator. It is lost if the coordinator does not run, dies or does not serve.
  void Post(std::function<void(Core&)> event);
  // Adds an event to the trace. A message is recorded with its direction and the worker.
  void Note(const std::string& what);
  void NoteMessage(const std::string& direction, const google::protobuf::Message& message);
  // Sends a request to the coordinator. `answer` is called with OK when the effects are durable, or with an error if
  // they were discarded. It is never called if the coordinator does not run or dies.
  void Ask(std::function<void(Core&)> request, std::function<void(const absl::Status&)> answer);
  bool is_serving() const { return commit_ != nullptr && commit_->is_open(); }
  // Whether the coordinator serves, is not stopped and does not wait for its disk.
  bool is_responsive() const { return is_serving() && busy_until_ns_ <= clock_.NowNs(); }
  // Null while the coordinator does not serve.
  Core* core() { return is_serving() ? commit_->coordinator() : nullptr; }
  std::shared_ptr<service::JobLog> log() { return commit_->log(); }
  LogModel& model() { return model_; }
  void Violate(const std::string& what) { result_.violations.push_back(what); }
  // The number of the coordinator's running process or, if there is none, of the last one.
  int64_t process() const { return process_; }
  std::string AnyWorker();
  // Whether some worker's id will never be used again.
  bool HasLostWorkers() const;
  bool IsReachable(const std::string& worker) const;
  int64_t FinishedSteps(const std::string& job, int64_t attempt) const;
  void CheckNotices();
  bool HasDied(const std::string& worker) const;
  bool HasCutHost(const std::string& worker) const;
  // Whether a worker has run without faults for so long that it cannot count as lost.
  bool IsWell(const std::string& worker) const;
  StormClients& clients() { return *clients_; }
  std::map<std::string, StoredIndex>& indexes() { return indexes_; }
  // Checks that the launch names the owner of its job, unless jobs of different owners share workers.
  void CheckOwner(const LaunchTask& launch);
  // Returns the client key of a job, which determines the contents of its state, or "" if the job is unknown.
  std::string KeyOf(const std::string& job_id) const;
  bool is_calm() const { return calm_; }
  // Whether only faults that were already planned occur now.
  bool is_quiet() const { return calm_ || clock_.NowNs() < quiet_until_ns_; }
  // Plans no new fault for this time, so that the consequences of the last one can be observed.
  void KeepQuiet(int64_t ms);
  // For some time, no index of a checkpoint can be stored.
  void FillIndexDisk();
  bool Has(StormFault fault) const { return (faults_ >> static_cast<int>(fault) & 1) != 0; }
  StormKind kind() const { return kind_; }
  int owners() const { return owners_; }

 private:
  void StartCoordinator();
  void Die(const std::string& how);
  void Turn();
  void ScheduleTurn(bool tick);
  void Tick();
  void TryToServe();
  void Perform(const service::Actions& actions, size_t count);
  void PerformOne(const service::Action& action);
  void HandleNext();
  void BreakDisk();
  void FailDisk(int64_t within_operations);
  void Pause(int64_t ms);
  void AimAtAdoption();
  void DrainDuringAdoption();
  void AimAt(int64_t connection, const CoordinatorMessage& message);
  void InjectFault();
  void End();
  void Repair();

  const StormOptions options_;
  const StormKind kind_;
  const bool aims_;        // Whether some faults are injected right after a command of the coordinator.
  const uint64_t faults_;  // The bits of the StormFaults that this storm has.
  service::CoordinatorOptions coordinator_options_;
  ManualClock clock_;
  const std::unique_ptr<Random> random_, coordinator_random_;
  SimulatedDisk disk_;
  const SqliteOnDisk sqlite_;
  std::map<std::string, StoredIndex> indexes_;  // Stored indexes by URI.
  const int owners_;  // The number of owners of the jobs; 0 if users are not known.
  LogModel model_;
  std::unique_ptr<service::GroupCommit> commit_;  // Null while no process runs.
  int64_t process_ = 0;                           // The number of coordinator processes so far.
  int64_t stopped_until_ns_ = 0;
  int64_t busy_until_ns_ = 0;  // Until this time the coordinator is stopped or waits for its disk.
  std::vector<service::Work> inbox_;
  bool turn_is_due_ = false, tick_is_due_ = false;
  int64_t next_open_ns_ = 0;
  std::unique_ptr<StormWorkers> workers_;
  std::unique_ptr<StormClients> clients_;
  std::multimap<int64_t, std::function<void()>> events_;  // Events by time.
  bool calm_ = false;                                     // Whether the time of faults has ended.
  int64_t quiet_until_ns_ = 0;
  int64_t index_disk_full_until_ns_ = 0;
  StormResult result_;
};

}  // namespace xlad::simulation
