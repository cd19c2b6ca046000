#include "tests/simulation/storm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "proto/mesh.h"
#include "service/testing/whole_message.h"
#include "tests/simulation/storm_clients.h"
#include "tests/simulation/storm_workers.h"

namespace xlad::simulation {
namespace {

constexpr char kLogPath[] = "/data/jobs.sqlite";
constexpr uint64_t kStormKinds = 3;
constexpr int kMaxWorkersOfAKind = 20;
constexpr int64_t kTickMs = 100;
constexpr int64_t kBuildMs = 200;
// The time from when a stopped process continues until it reads the messages that have arrived.
constexpr int64_t kReadMs = 2;
constexpr int64_t kReopenMs = 300;
constexpr int64_t kOpenOperations = 20;  // About as many operations of the disk open the log.
constexpr int64_t kShortLeaseSteps = 60;
constexpr int64_t kKeepLostMs = 1000;
constexpr int64_t kSettleMs = 5000;
constexpr uint64_t kFaults = static_cast<uint64_t>(StormFault::kCount);
constexpr int64_t kRecoveryMs = 3000;  // Without new faults, the consequences of a pause end in this time.
// More events per worker than this mean that messages cause each other endlessly.
constexpr int64_t kMaxEventsPerWorker = 500'000;

// Chooses each kind of fault with probability 3/4. A storm with many workers has all kinds.
uint64_t SomeFaults(const StormOptions& options) {
  constexpr uint64_t kAll = (uint64_t{1} << kFaults) - 1;
  if (options.workers > kMaxWorkersOfAKind) return kAll;
  const auto random = SeededRandom(options.seed + 3);
  return (random->Next() | random->Next()) & kAll;
}

int HostsOf(const StormOptions& options) {
  constexpr uint64_t kMaxHosts = 3;
  if (options.hosts > 0) return options.hosts;
  return 1 + static_cast<int>(SeededRandom(options.seed + 4)->Below(kMaxHosts));
}

// Whether jobs of different owners may be on one worker: in every fifth storm.
bool SharesWorkers(const StormOptions& options) { return options.seed % 5 == 0; }

}  // namespace

Storm::Storm(const StormOptions& options)
    : options_(options),
      kind_(options.workers > kMaxWorkersOfAKind ? StormKind::kMixed
                                                 : static_cast<StormKind>(options.seed % kStormKinds)),
      aims_(options.seed % 2 == 1),
      faults_(SomeFaults(options)),
      random_(SeededRandom(options.seed)),
      coordinator_random_(SeededRandom(options.seed + 1)),
      disk_(options.seed + 2),
      sqlite_(&disk_),
      owners_(static_cast<int>(std::array{0, 2, 3}[options.seed / kStormKinds % 3])),
      model_(&indexes_, options.devices_each, SharesWorkers(options),
             {[this](const std::string& worker) { return workers_->IsWell(worker); },
              [this](const std::string& worker) { return workers_->IncarnationOf(worker); }}),
      workers_(std::make_unique<StormWorkers>(this, options.workers, options.devices_each, HostsOf(options))),
      clients_(std::make_unique<StormClients>(this, options.jobs, options.max_devices)) {
  if (random_->Below(2) == 0) coordinator_options_.lease_steps = kShortLeaseSteps;
  coordinator_options_.share_workers = SharesWorkers(options);
  // Only storms with aims_ (odd seeds) cut off workers during adoptions. These workers have jobs when they are lost.
  if (options.seed % 4 == 1) coordinator_options_.keep_lost_workers_ms = kKeepLostMs;
}

Storm::~Storm() = default;

void Storm::Note(const std::string& what) {
  if (options_.trace) std::printf("%9.3f  %s\n", static_cast<double>(clock_.NowNs()) / 1e9, what.c_str());
  result_.trace_hash = Hash64(absl::StrCat(clock_.NowNs(), " ", what), result_.trace_hash);
}

void Storm::NoteMessage(const std::string& direction, const google::protobuf::Message& message) {
  if (options_.trace) return Note(absl::StrCat(direction, " ", message.ShortDebugString().substr(0, 300)));
  Note(direction + message.SerializeAsString());
}

void Storm::After(int64_t delay_ms, std::function<void()> event) {
  events_.emplace(clock_.NowNs() + delay_ms * kNsPerMs, std::move(event));
}

std::string Storm::KeyOf(const std::string& job_id) const {
  const auto found = model_.jobs().find(job_id);
  return found == model_.jobs().end() ? "" : found->second.key;
}

void Storm::CheckOwner(const LaunchTask& launch) {
  const std::string owner = service::OwnerOfKey(KeyOf(launch.job_id()));
  if (launch.has_owner() != coordinator_options_.share_workers && launch.owner() == (launch.has_owner() ? owner : "")) {
    return;
  }
  Violate(
      absl::StrCat("the launch of ", launch.job_id(), " names \"", launch.owner(), "\" as owner, not \"", owner, "\""));
}

// --- The coordinator's process.

void Storm::StartCoordinator() {
  if (commit_ != nullptr) return;
  ++process_;
  commit_ = std::make_unique<service::GroupCommit>(
      coordinator_options_,
      service::GroupCommit::Environment{&clock_, coordinator_random_.get(),
                                        [this]() -> absl::StatusOr<std::shared_ptr<service::JobLog>> {
                                          XLAD_ASSIGN_OR_RETURN(auto log, service::OpenSqliteJobLog(kLogPath));
                                          return Observe(std::move(log), &model_);
                                        }});
  Note("coordinator starts");
  if (process_ > 1) {
    DrainDuringAdoption();
    AimAtAdoption();
  }
  busy_until_ns_ = stopped_until_ns_ = 0;
  next_open_ns_ = 0;
  ScheduleTurn(/*tick=*/true);
}

// The power fails, or the process is killed. Only the contents of the disk remain.
void Storm::Die(const std::string& how) {
  if (commit_ == nullptr) return;
  Note("coordinator dies " + how);
  ++result_.crashes;
  disk_.CrashAt(disk_.operations());  // The process dies without closing its files.
  commit_.reset();
  inbox_.clear();
  turn_is_due_ = tick_is_due_ = false;
  disk_.Restart();
  workers_->OnCoordinatorGone();
  After(Between(50, 4000), [this] { StartCoordinator(); });
}

void Storm::Post(std::function<void(Core&)> event) { Ask(std::move(event), nullptr); }

void Storm::Ask(std::function<void(Core&)> request, std::function<void(const absl::Status&)> answer) {
  if (commit_ == nullptr) return;
  // The request stays in the socket, because a stopped process does not read.
  if (clock_.NowNs() < stopped_until_ns_) {
    const int64_t wait_ms = (stopped_until_ns_ - clock_.NowNs()) / kNsPerMs + kReadMs;
    return After(wait_ms, [this, process = process_, request, answer] {
      if (process == process_) Ask(request, answer);
    });
  }
  inbox_.push_back({std::move(request), std::move(answer)});
  ScheduleTurn(/*tick=*/false);
}

std::string Storm::AnyWorker() { return workers_->AnyId(); }
bool Storm::HasLostWorkers() const { return workers_->HasLostIds(); }
bool Storm::IsReachable(const std::string& worker) const { return workers_->IsReachable(worker); }
int64_t Storm::FinishedSteps(const std::string& job, int64_t attempt) const {
  return workers_->FinishedSteps(job, attempt);
}
void Storm::CheckNotices() { workers_->CheckNotices(); }
bool Storm::HasDied(const std::string& worker) const { return workers_->HasDied(worker); }
bool Storm::HasCutHost(const std::string& worker) const { return workers_->HasCutHost(worker); }
bool Storm::IsWell(const std::string& worker) const { return workers_->IsWell(worker); }

void Storm::ScheduleTurn(bool tick) {
  tick_is_due_ = tick_is_due_ || tick;
  if (turn_is_due_ || commit_ == nullptr) return;
  turn_is_due_ = true;
  const int64_t wait_ms = std::max<int64_t>(0, (busy_until_ns_ - clock_.NowNs()) / kNsPerMs);
  After(wait_ms, [this, process = process_] {
    if (process == process_ && commit_ != nullptr) Turn();
  });
}

void Storm::Tick() {
  ScheduleTurn(/*tick=*/true);
  After(kTickMs, [this] { Tick(); });
}

void Storm::TryToServe() {
  if (clock_.NowNs() < next_open_ns_) return;
  next_open_ns_ = clock_.NowNs() + kReopenMs * kNsPerMs;
  if (!is_quiet() && Has(StormFault::kDisk) && random_->Below(4) == 0) FailDisk(kOpenOperations);
  const auto actions = commit_->TryOpen("simulation");
  if (disk_.has_crashed()) return Die("while it recovers");
  if (actions.ok()) Perform(*actions, actions->size());
}

void Storm::KeepQuiet(int64_t ms) { quiet_until_ns_ = std::max(quiet_until_ns_, clock_.NowNs() + ms * kNsPerMs); }

// Sometimes drains a worker of an attempt before all workers of the attempt have connected again. Like AimAtAdoption,
// this ignores KeepQuiet, because the time without new faults often begins before a restart of the coordinator.
void Storm::DrainDuringAdoption() {
  if (calm_ || !aims_ || random_->Below(2) != 0) return;
  std::vector<std::string> workers;
  for (const auto& [id, job] : model_.jobs()) {
    if (!job.running || !job.started) continue;
    for (const Peer& peer : job.placed.peers()) workers.push_back(peer.worker_id());
  }
  if (workers.empty()) return;
  const std::string worker = workers[random_->Below(workers.size())];
  After(Between(100, 900), [this, worker] {
    if (!model_.drained().contains(worker)) clients_->SetDrain(worker, /*drain=*/true);
  });
}

// Sometimes cuts off two workers of an attempt that is being adopted (StormWorkers::CutDuringAdoption).
void Storm::AimAtAdoption() {
  if (calm_ || !aims_ || !Has(StormFault::kCut)) return;
  const LogModel::Job* adopted = nullptr;  // An attempt that has not started is preferred, because it is rarer.
  for (const auto& [id, job] : model_.jobs()) {
    const bool is_better = adopted == nullptr || (adopted->started && !job.started);
    if (job.running && job.placed.peers_size() >= 2 && is_better) adopted = &job;
  }
  if (adopted == nullptr || (adopted->started && random_->Below(4) != 0)) return;
  const auto& peers = adopted->placed.peers();
  const int64_t first = Between(0, peers.size() - 1);
  const int64_t second = (first + Between(1, peers.size() - 1)) % peers.size();
  workers_->CutDuringAdoption(peers[static_cast<int>(first)].worker_id(), peers[static_cast<int>(second)].worker_id());
}

// Sometimes plans a fault of the coordinator or the worker for the time of the command, or up to 200 ms later.
void Storm::AimAt(int64_t connection, const CoordinatorMessage& message) {
  const bool is_aim =
      message.has_launch() || message.has_start() || message.has_stop_at() || message.has_checkpoint_at();
  const uint64_t rarity = message.has_stop_at() ? 4 : message.has_launch() ? 6 : message.has_start() ? 12 : 40;
  if (is_quiet() || !aims_ || !is_aim || random_->Below(rarity) != 0) return;
  // The time without new faults covers a restart of the coordinator and its consequences.
  if (random_->Below(2) == 0) KeepQuiet(Between(3000, 18'000));
  // The loss of the coordinator or of a connection has the most effect on commands that start or stop an attempt.
  constexpr uint64_t kFates[] = {0, 1, 2, 3, 0, 0, 0, 3};
  const bool starts_or_stops = message.has_stop_at() || message.has_launch() || message.has_start();
  const uint64_t fate = kFates[random_->Below(starts_or_stops ? std::size(kFates) : 4)];
  // An attempt starts about 20 to 150 ms after its launch.
  const bool at_once = random_->Below(message.has_launch() ? 4 : 2) == 0;
  int64_t delay_ms = 0;
  if (!at_once) delay_ms = message.has_launch() ? Between(20, 120) : Between(0, 200);
  After(delay_ms, [this, fate, connection] {
    if (calm_) return;
    if (fate == 0 && Has(StormFault::kDeath)) Die("after a command");
    if (fate == 1 && Has(StormFault::kPause)) Pause(Between(500, 15'000));
    if (fate == 2 && Has(StormFault::kWorkerDeath)) workers_->Break(connection, /*kill=*/true);
    if (fate == 3) workers_->Break(connection, /*kill=*/false);
  });
}

void Storm::Pause(int64_t ms) {
  Note("coordinator is stopped");
  if (random_->Below(2) == 0) KeepQuiet(ms + kRecoveryMs);
  stopped_until_ns_ = std::max(stopped_until_ns_, clock_.NowNs() + ms * kNsPerMs);
  busy_until_ns_ = std::max(busy_until_ns_, stopped_until_ns_);
}

// Handles all events that have arrived, as the engine's thread does.
void Storm::Turn() {
  turn_is_due_ = false;
  if (clock_.NowNs() < busy_until_ns_) return ScheduleTurn(/*tick=*/false);
  const bool tick = std::exchange(tick_is_due_, false);
  std::vector<service::Work> batch = std::exchange(inbox_, {});
  if (!commit_->is_open()) {
    for (const service::Work& work : batch) {
      if (work.answer) work.answer(absl::UnavailableError("the coordinator does not serve"));
    }
    if (tick) TryToServe();
    return;
  }
  if (!is_quiet() && Has(StormFault::kDisk)) BreakDisk();
  const int64_t operations = disk_.operations();
  int64_t unanswered = 0;
  for (service::Work& work : batch) {
    if (!work.answer) continue;
    ++unanswered;
    work.answer = [&unanswered, answer = std::move(work.answer)](const absl::Status& status) {
      --unanswered;
      answer(status);
    };
  }
  const auto start = std::chrono::steady_clock::now();
  const auto actions = commit_->Commit(batch, tick);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  result_.longest_turn_ms = std::max(result_.longest_turn_ms, took.count());
  if (disk_.has_crashed()) return Die("while it commits");
  if (!actions.ok()) {
    Note("coordinator stops serving");
    if (unanswered != 0) Violate(absl::StrCat(unanswered, " requests were refused without an answer"));
    return workers_->OnCoordinatorGone();
  }
  workers_->CheckPlacements();
  const bool wrote = disk_.operations() > operations;
  const bool dies = !is_quiet() && Has(StormFault::kDeath) && wrote && random_->Below(150) == 0;
  if (dies) {  // A crash between commit and acknowledgment, after some of the actions.
    Perform(*actions, random_->Below(actions->size() + 1));
    return Die("after a commit");
  }
  const bool slow = !is_quiet() && wrote && random_->Below(100) == 0;
  busy_until_ns_ = clock_.NowNs() + (slow ? Between(50, 5000) : 0) * kNsPerMs;
  Perform(*actions, actions->size());
  for (const service::Work& work : batch) {
    if (work.answer) work.answer(absl::OkStatus());
  }
}

// Sometimes plans faults of the disk or a loss of power for the next disk operations.
void Storm::BreakDisk() {
  const uint64_t fate = random_->Below(400);
  if (fate == 0) disk_.CrashAt(disk_.operations() + Between(0, 7));
  if (fate >= 1 && fate <= (aims_ ? 5 : 2)) FailDisk(8);
}

// Plans a fault that begins within the next operations of the disk.
void Storm::FailDisk(int64_t within_operations) {
  constexpr DiskFault kDiskFaults[] = {DiskFault::kNoSpace,  DiskFault::kIoError,  DiskFault::kTornWrite,
                                       DiskFault::kLostSync, DiskFault::kLostSync, DiskFault::kAmbiguousSync};
  ++result_.disk_faults;
  const DiskFault fault = kDiskFaults[random_->Below(std::size(kDiskFaults))];
  const int64_t first = disk_.operations() + Between(1, within_operations), count = Between(1, 12);
  disk_.FailAt(first, fault, count);
  // Records that are read after a lost sync may be missing after the next crash.
  if (aims_ && fault == DiskFault::kLostSync && random_->Below(2) == 0) {
    After(Between(500, 5000), [this] {
      if (!calm_) Die("after a lost sync");
    });
  }
}

void Storm::Perform(const service::Actions& actions, size_t count) {
  for (size_t i = 0; i < count; ++i) PerformOne(actions[i]);
}

void Storm::PerformOne(const service::Action& action) {
  const auto later = [this](int64_t ms, std::function<void(Core&)> event) {
    After(ms, [this, process = process_, event = std::move(event)] {
      if (process == process_ && is_serving()) Post(event);
    });
  };
  if (const auto* send = std::get_if<service::SendMessage>(&action)) {
    const CoordinatorMessage message = service::WholeOf(*send);
    if (message.term() != model_.term()) {
      Violate(absl::StrCat("a message has term ", message.term(), ", the log has ", model_.term()));
    }
    workers_->Deliver(send->connection.value(), message);
    AimAt(send->connection.value(), message);
  } else if (const auto* close = std::get_if<service::CloseConnection>(&action)) {
    workers_->Close(close->connection.value());
  } else if (const auto* build = std::get_if<service::StartBuild>(&action)) {
    // In half of the builds, all kernels are in the cache.
    later(Between(1, kBuildMs), [build = *build, quick = build->quick && random_->Below(2) == 0](Core& c) {
      service::BuiltProgram built;
      built.quick = quick;
      built.compiler = "compiler";
      built.executable_digest =
          absl::StrCat(quick ? kQuick : "", "executable of ", build.job.str(), " on ", MeshText(build.mesh));
      built.plan.target = build.targets[0];
      built.batch_axes = {"dp"};
      c.OnBuilt(build.job, build.mesh, built);
    });
  } else if (const auto* optimizing = std::get_if<service::StartOptimizing>(&action)) {
    later(Between(1, 4 * kBuildMs), [request = *optimizing, fails = random_->Below(4) == 0](Core& c) {
      service::BuiltProgram built;
      built.executable_digest = std::string(absl::StripPrefix(request.executable_digest, kQuick));
      built.compiler = "compiler";
      if (fails) return c.OnOptimized(request, absl::InternalError("the compiler crashed"));
      c.OnOptimized(request, built);
    });
  } else if (const auto* load = std::get_if<service::LoadPlan>(&action)) {
    // If the file of the executable is damaged, the program is built again.
    const bool is_lost = !calm_ && random_->Below(5) == 0;
    later(5, [digest = load->executable_digest, is_lost](Core& c) {
      if (is_lost) return c.OnPlanLoaded(digest, absl::DataLossError("damaged"));
      c.OnPlanLoaded(digest, service::PlannedProgram());
    });
  } else if (const auto* store = std::get_if<service::StoreIndex>(&action)) {
    const bool fails = !calm_ && random_->Below(15) == 0, is_fast = random_->Below(2) == 0;
    absl::StatusOr<service::Checkpoint> stored = absl::UnavailableError("the storage of checkpoints");
    if (clock_.NowNs() < index_disk_full_until_ns_) {
      stored = absl::ResourceExhaustedError("no space for the index");
    } else if (!fails) {
      stored = workers_->StoreIndex(store->index);
    }
    later(Between(1, is_fast          ? 3
                     : fails || calm_ ? 100
                                      : 1500),
          [request = *store, stored](Core& c) { c.OnIndexStored(request, stored); });
  } else if (const auto* dropped = std::get_if<service::DropCheckpoint>(&action)) {
    model_.CheckRemoved(dropped->uri);
  }
}

// --- Faults.

void Storm::FillIndexDisk() {
  Note("there is no space for indexes");
  index_disk_full_until_ns_ = clock_.NowNs() + Between(200, 2500) * kNsPerMs;
}

void Storm::InjectFault() {
  if (calm_) return;
  After(Between(100, 2500), [this] { InjectFault(); });
  const uint64_t whom = random_->Below(10);
  if (is_quiet()) return;
  if (whom == 0 && Has(StormFault::kDeath)) Die("killed");
  // Stops the coordinator for some time, like SIGSTOP or a slow machine.
  if (whom == 1 && Has(StormFault::kPause)) Pause(Between(500, 15'000));
  if (whom > 1) workers_->InjectFault();
}

// Ends the storm. If a time without new faults (KeepQuiet) is in progress, waits for its end first.
void Storm::End() {
  if (!is_quiet()) return Repair();
  After((quiet_until_ns_ - clock_.NowNs()) / kNsPerMs + 1, [this] { End(); });
}

void Storm::Repair() {
  Note("calm");
  calm_ = true;
  disk_.FailAt(INT64_MAX, DiskFault::kNone, 0);
  disk_.CrashAt(INT64_MAX);
  index_disk_full_until_ns_ = 0;
  workers_->Repair();
  clients_->Repair();
}

void Storm::HandleNext() {
  const auto event = events_.begin();
  clock_.Advance(std::max<int64_t>(0, event->first - clock_.NowNs()));
  const std::function<void()> handle = std::move(event->second);
  events_.erase(event);
  handle();
  const int64_t max_events = kMaxEventsPerWorker * options_.workers;
  if (++result_.events == max_events) Violate("the cluster's events do not end");
  if (result_.events >= max_events) clock_.Advance(kNsPerMs);  // The clock advances, so that the run ends in any case.
}

StormResult Storm::Run() {
  StartCoordinator();
  workers_->Start();
  clients_->Start(options_.storm_ms);
  Tick();
  After(Between(100, 2500), [this] { InjectFault(); });
  After(options_.storm_ms, [this] { End(); });
  const int64_t limit_ns = options_.limit_ms * kNsPerMs;
  while (clock_.NowNs() < limit_ns && !(calm_ && clients_->AllEnded())) HandleNext();
  clients_->CheckEnd();
  // Running workers are soon told which attempts have ended; stopped workers are told when they continue, and all of
  // them when a stopped coordinator continues.
  const int64_t end_ns =
      std::max({clock_.NowNs(), workers_->StoppedUntilNs(), stopped_until_ns_}) + kSettleMs * kNsPerMs;
  while (clock_.NowNs() < end_ns) HandleNext();
  workers_->CheckEnd();
  result_.violations.insert(result_.violations.end(), model_.violations().begin(), model_.violations().end());
  result_.attempts = model_.attempts();
  result_.checkpoints = model_.checkpoints();
  result_.misreads = workers_->misreads();
  result_.records = model_.records();
  result_.virtual_ms = clock_.NowNs() / kNsPerMs;
  return result_;
}

}  // namespace xlad::simulation
