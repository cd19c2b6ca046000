// A cluster in a storm: the real coordinator and its real SQLite log on a disk, in a network and among workers that
// fail, event by event on a virtual clock. A seed determines everything. Used by one thread.
//
// Real: GroupCommit with the coordinator's state machines, the SQLite log. Simulated: disk, network, builds, storage of
// checkpoints, clients (storm_clients.h), and the workers (storm_workers.h), which follow the protocol of
// proto/worker.proto and whose states have contents.
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

// The kinds of faults. A storm has most kinds and lacks some, so that what one kind of fault does is not always covered
// by another kind (Groce et al., "Swarm Testing", ISSTA 2012).
enum class StormFault {
  kDeath,         // The coordinator is killed.
  kPause,         // The coordinator is stopped.
  kDisk,          // The disk of the coordinator fails.
  kWorkerDeath,   // A worker is killed.
  kCut,           // A path is cut.
  kWorkerPause,   // A worker is stopped.
  kLeaving,       // A worker leaves in order.
  kTaskDeath,     // The process of one task ends.
  kRack,          // Several workers go at once.
  kCount,
};

// What a storm has most of. Faults that reveal an error must often meet within milliseconds, and rarely do by chance.
enum class StormKind {
  kMixed,  // All kinds of faults.
  kLong,   // Long jobs whose tasks die often, with limits of attempts.
  kStops,  // Long jobs that are stopped: drains, changes of the mesh, and several workers that go at once.
};

struct StormOptions {
  uint64_t seed = 0;
  int workers = 5;
  int devices_each = 2;
  int jobs = 6;
  int64_t max_devices = 8;     // The largest job's; all jobs fit when one worker has gone.
  int64_t storm_ms = 20'000;   // Faults happen in this time; then everything is repaired.
  int64_t limit_ms = 400'000;  // All jobs must have ended by then.
  bool trace = false;          // Print every event.
};

struct StormResult {
  std::vector<std::string> violations;
  int64_t attempts = 0, checkpoints = 0, crashes = 0, disk_faults = 0, events = 0;
  int64_t virtual_ms = 0;
  double longest_turn_ms = 0;  // The time that the coordinator took to handle one batch, at most.
  uint64_t trace_hash = 0;     // A hash of all events; equal for equal seeds.
  std::map<std::string, int64_t> records;  // The number of records of each kind in the log.
};

// More than 25 methods: one per kind of event and fault.
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
  // An event for the coordinator; lost if it is not running when the event arrives.
  void Post(std::function<void(Core&)> event);
  // Adds an event to the trace. A message is noted with its direction and the worker.
  void Note(const std::string& what);
  void NoteMessage(const std::string& direction, const google::protobuf::Message& message);
  // A request to the coordinator. `answer` is called with OK when its effects are durable, with the reason if they are
  // not, or never if no process runs or it dies.
  void Ask(std::function<void(Core&)> request, std::function<void(const absl::Status&)> answer);
  bool is_serving() const { return commit_ != nullptr && commit_->is_open(); }
  // Whether it serves and is not stopped.
  bool is_responsive() const { return is_serving() && busy_until_ns_ <= clock_.NowNs(); }
  // Null while the coordinator does not serve.
  Core* core() { return is_serving() ? commit_->coordinator() : nullptr; }
  std::shared_ptr<service::JobLog> log() { return commit_->log(); }
  LogModel& model() { return model_; }
  void Violate(const std::string& what) { result_.violations.push_back(what); }
  // The number of the coordinator's process: of the one that runs, or of the last one.
  int64_t process() const { return process_; }
  std::string AnyWorker();
  // Whether an id of a worker will never be used again.
  bool HasLostWorkers() const;
  bool IsReachable(const std::string& worker) const;
  bool HasDied(const std::string& worker) const;
  // Whether a worker has had no trouble for so long that it cannot count as lost.
  bool IsWell(const std::string& worker) const;
  StormClients& clients() { return *clients_; }
  std::map<std::string, StoredIndex>& indexes() { return indexes_; }
  // The client key of a job, by which its contents are known.
  std::string KeyOf(const std::string& job_id) const;
  bool is_calm() const { return calm_; }
  // Whether no fault happens now that was not planned before.
  bool is_quiet() const { return calm_ || clock_.NowNs() < quiet_until_ns_; }
  // No new fault is planned for this time, so that the consequences of the last one can be seen.
  void KeepQuiet(int64_t ms);
  bool Has(StormFault fault) const { return (faults_ >> static_cast<int>(fault) & 1) != 0; }
  StormKind kind() const { return kind_; }

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
  void Pause(int64_t ms);
  void AimAtAdoption();
  void AimAt(int64_t connection, const CoordinatorMessage& message);
  void Misfortune();
  void End();
  void Repair();

  const StormOptions options_;
  const StormKind kind_;
  const bool aims_;  // Some faults come right after a command of the coordinator.
  const uint64_t faults_;  // A bit for each StormFault that this storm has.
  service::CoordinatorOptions coordinator_options_;
  ManualClock clock_;
  const std::unique_ptr<Random> random_, coordinator_random_;
  SimulatedDisk disk_;
  const SqliteOnDisk sqlite_;
  std::map<std::string, StoredIndex> indexes_;  // By URI.
  LogModel model_;
  std::unique_ptr<service::GroupCommit> commit_;  // Null while no process runs.
  int64_t process_ = 0;                           // The number of processes so far.
  int64_t stopped_until_ns_ = 0;
  int64_t busy_until_ns_ = 0;  // The coordinator is stopped, or waits for its disk.
  std::vector<service::Work> inbox_;
  bool turn_is_due_ = false, tick_is_due_ = false;
  int64_t next_open_ns_ = 0;
  std::unique_ptr<StormWorkers> workers_;
  std::unique_ptr<StormClients> clients_;
  std::multimap<int64_t, std::function<void()>> events_;  // By time.
  bool calm_ = false;                                     // The faults are over.
  int64_t quiet_until_ns_ = 0;
  StormResult result_;
};

}  // namespace xlad::simulation
