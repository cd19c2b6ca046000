#include "tests/simulation/storm_workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/mesh.h"
#include "proto/protocol.h"
#include "tests/simulation/storm.h"
#include "tests/simulation/storm_process.h"

namespace xlad::simulation {
namespace {

constexpr int kRack = 3;  // At most this many workers die at once.
// The cases of StormWorkers::InjectFault.
constexpr StormFault kFaultOf[] = {StormFault::kWorkerDeath, StormFault::kWorkerDeath, StormFault::kCut,
                                   StormFault::kCut,         StormFault::kWorkerPause, StormFault::kLeaving,
                                   StormFault::kTaskDeath};
constexpr uint64_t kTaskDies = 6;
constexpr int64_t kBeatMs = 500;
constexpr int64_t kSurelyWellMs = 12'000;  // Longer than the time after which a silent worker counts as lost.
constexpr int64_t kDeadLinkMs = 6000;      // A link that has been cut for longer than this is closed.

}  // namespace

StormWorkers::StormWorkers(Storm* storm, int workers, int devices_each, int hosts)
    : storm_(storm), devices_each_(devices_each), hosts_(hosts) {
  for (int w = 0; w < workers; ++w) {
    processes_.push_back(std::make_unique<Process>());
    processes_.back()->number = w;
    processes_.back()->host = w * hosts / workers;
    processes_.back()->id = absl::StrCat("w", w);
  }
}

StormWorkers::~StormWorkers() = default;

void StormWorkers::Start() {
  has_old_versions_ = storm_->random().Below(2) == 0;
  if (hosts_ > 1) misreading_host_ = static_cast<int>(storm_->random().Below(hosts_));
  for (const auto& process : processes_) StartProcess(process.get());
  storm_->After(storm_->Between(100, 2500), [this] { InjectDiskFault(); });
}

// --- Processes and connections.

void StormWorkers::StartProcess(Process* process) {
  if (process->up || process->is_gone) return;
  process->up = true;
  process->trouble_ns = storm_->NowNs();
  process->incarnation = next_incarnation_++;
  process->replaces_code = !has_old_versions_ || storm_->random().Below(8) != 0;
  const int64_t life = ++process->life;
  process->stopped_until_ns = process->misreads_until_ns = 0;
  process->term = 0;
  process->leaving = process->lost_power = false;
  storm_->Note(absl::StrCat(process->id, " starts"));
  storm_->After(storm_->Between(1, 200), [this, process, life] { Beat(process, life); });
}

void StormWorkers::Kill(Process* process) {
  if (!process->up) return;
  storm_->Note(absl::StrCat(process->id, " dies"));
  process->up = false;
  Disconnect(process);
  process->waiting.clear();
  while (!process->tasks.empty()) Drop(process, process->tasks.begin()->first);
}

void StormWorkers::Connect(Process* process) {
  if (!storm_->is_serving() || process->refused || process->cut_up || process->cut_down) return;
  process->connection = next_connection_++;
  connections_[process->connection] = process;
  process->last_up_ns = process->last_down_ns = 0;
  WorkerMessage message = RegistrationOf(*process);
  for (auto& [key, task] : process->tasks) {
    RunningTask* running = message.mutable_register_()->add_running();
    Name(task.launch, running);
    running->set_step(task.gang->finished);
  }
  SendUp(process, std::move(message));
}

WorkerMessage StormWorkers::RegistrationOf(const Process& process) const {
  WorkerMessage message;
  RegisterWorker* registration = message.mutable_register_();
  registration->set_worker_id(process.id);
  registration->set_incarnation(process.incarnation);
  registration->set_host(absl::StrCat("host", process.host));
  registration->set_pid(1000 + process.number);
  registration->set_devices(devices_each_);
  registration->set_protocol(kProtocol);
  registration->set_replaces_code(process.replaces_code);
  return message;
}

void StormWorkers::Disconnect(Process* process) {
  if (process->connection == 0) return;
  const int64_t connection = std::exchange(process->connection, 0);
  connections_.erase(connection);
  process->registered = false;
  process->held_up.clear();
  process->held_down.clear();
  storm_->After(storm_->Between(0, 100), [this, connection] {
    storm_->Post([connection](Core& c) { c.OnWorkerGone(service::ConnectionId(connection)); });
  });
}

void StormWorkers::OnCoordinatorGone() {
  overtaken_ = Overtaken();  // The next coordinator reserves other workers.
  for (const auto& process : processes_) Disconnect(process.get());
}

void StormWorkers::Close(int64_t connection) {
  storm_->After(storm_->Between(0, 20), [this, connection] {
    const auto found = connections_.find(connection);
    if (found != connections_.end()) Disconnect(found->second);
  });
}

// Sends a heartbeat every half second. Reconnects if the worker does not have a connection.
void StormWorkers::Beat(Process* process, int64_t life) {
  if (!process->up || process->life != life) return;
  const int64_t now_ns = storm_->NowNs();
  if (now_ns >= process->stopped_until_ns) {
    const bool dead_link =
        (process->cut_up || process->cut_down) && now_ns - process->cut_since_ns > kDeadLinkMs * kNsPerMs;
    if (dead_link) Disconnect(process);
    if (process->connection == 0) {
      Connect(process);
    } else if (process->registered) {
      WorkerMessage message;
      for (auto& [key, task] : process->tasks) {
        RunningTask* running = message.mutable_heartbeat()->add_running();
        Name(task.launch, running);
        running->set_step(task.gang->finished);
        ReportSilence(*process, task, running);
      }
      message.mutable_heartbeat();
      SendUp(process, std::move(message));
      for (auto& [key, task] : process->tasks) SendMetrics(process, &task);
    }
  }
  storm_->After(kBeatMs, [this, process, life] { Beat(process, life); });
}

void StormWorkers::SendUp(Process* process, WorkerMessage message) {
  if (process->connection == 0 || !process->up) return;
  message.set_incarnation(process->incarnation);
  RepeatWithWrongSender(*process, message);
  if (process->cut_up || !process->held_up.empty()) {
    process->held_up.push_back(std::move(message));
    return;
  }
  const int64_t now_ns = storm_->NowNs();
  process->last_up_ns = std::max(process->last_up_ns, now_ns + storm_->Between(0, 20) * kNsPerMs);
  const int64_t connection = process->connection;
  storm_->After((process->last_up_ns - now_ns) / kNsPerMs,
                [this, connection, coordinator = storm_->process(), message = std::move(message)] {
                  if (coordinator == storm_->process()) DeliverUp(connection, message);
                });
}

// Messages that were sent before the connection closed arrive even after the coordinator was notified of the close.
void StormWorkers::DeliverUp(int64_t connection, const WorkerMessage& message) {
  storm_->NoteMessage(absl::StrCat("from connection ", connection), message);
  storm_->Post([connection, message](Core& c) { c.OnWorkerMessage(service::ConnectionId(connection), message); });
}

void StormWorkers::Deliver(int64_t connection, const CoordinatorMessage& message) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  Process* process = found->second;
  if (process->cut_down || !process->held_down.empty()) {
    process->held_down.push_back(message);
    return;
  }
  const int64_t now_ns = storm_->NowNs();
  process->last_down_ns = std::max(process->last_down_ns, now_ns + storm_->Between(0, 20) * kNsPerMs);
  const int64_t at_ns = std::max(process->last_down_ns, process->stopped_until_ns);
  storm_->After((at_ns - now_ns) / kNsPerMs, [this, connection, message] {
    const auto still = connections_.find(connection);
    if (still != connections_.end()) Handle(still->second, message);
  });
}

// --- Messages of the coordinator.

void StormWorkers::Handle(Process* process, const CoordinatorMessage& message) {
  storm_->NoteMessage("to " + process->id, message);
  if (message.term() < process->term) return;  // A newer coordinator process has replaced the sender.
  process->term = message.term();
  const auto drop = [&](const auto& named) {
    const TaskKey key{named.job_id(), named.attempt()};
    process->waiting.erase(key);
    if (Find(process, key, named.generation()) != nullptr) Drop(process, key);
    StartWaiting(process);
  };
  const auto lease = [&](const auto& named) {
    Task* task = Find(process, {named.job_id(), named.attempt()}, named.generation());
    if (task != nullptr) task->lease_until = std::max(task->lease_until, named.lease_until_step());
  };
  switch (message.message_case()) {
    case CoordinatorMessage::kRegistered:
      if (message.registered().refused().empty()) OnRegistered(process);
      return;
    case CoordinatorMessage::kLaunch:
      return OnLaunch(process, message.launch());
    case CoordinatorMessage::kStart:
      if (Task* task =
              Find(process, {message.start().job_id(), message.start().attempt()}, message.start().generation());
          task != nullptr) {
        task->started = true;
        const int64_t first = task->launch.first_step();
        if (first < task->launch.spec().steps() && message.start().lease_until_step() <= first) {
          storm_->Violate(absl::StrCat(process->id, " starts from step ", first, " without a lease"));
        }
      }
      return lease(message.start());
    case CoordinatorMessage::kRenew:
      return lease(message.renew());
    case CoordinatorMessage::kStopAt:
      return OnStopAt(process, message.stop_at());
    case CoordinatorMessage::kCheckpointAt:
      return OnCheckpointAt(process, message.checkpoint_at());
    case CoordinatorMessage::kCommitted:
      return OnCommitted(process, message.committed());
    case CoordinatorMessage::kAcknowledge:
      return OnAcknowledge(process, message.acknowledge());
    case CoordinatorMessage::kReplaceCode:
      return OnReplaceCode(process, message.replace_code());
    case CoordinatorMessage::kAbort:
      return drop(message.abort());
    case CoordinatorMessage::kForget:
      return drop(message.forget());
    case CoordinatorMessage::kMayExit:
      if (!process->leaving) storm_->Violate(absl::StrCat(process->id, " may exit, but does not drain"));
      Kill(process);
      storm_->After(storm_->Between(100, 2000), [this, process] { StartProcess(process); });
      return;
    default:
      return;
  }
}

void StormWorkers::OnReplaceCode(Process* process, const ReplaceCode& message) {
  Task* task = Find(process, {message.job_id(), message.attempt()}, message.generation());
  if (task == nullptr) return;
  const std::string& launched = task->launch.executable_digest();
  if (launched != absl::StrCat(kQuick, message.executable_digest())) {
    storm_->Violate(absl::StrCat(message.executable_digest(), " replaces ", launched));
  }
  task->is_quick = false;
}

void StormWorkers::OnRegistered(Process* process) {
  process->registered = true;
  for (auto& [key, task] : process->tasks) {
    if (!task.started) task.ready = false;  // The worker reports again that the task is ready.
    SendUnanswered(process, &task);
  }
  if (!process->leaving) return;
  WorkerMessage message;
  message.mutable_draining();
  SendUp(process, std::move(message));
}

StormWorkers::Task* StormWorkers::Find(Process* process, const TaskKey& key, int64_t generation) {
  const auto found = process->tasks.find(key);
  if (found == process->tasks.end() || found->second.launch.generation() != generation) return nullptr;
  return &found->second;
}

bool StormWorkers::RunsOthers(const Process& process, const LaunchTask& launch) {
  return launch.has_owner() && std::any_of(process.tasks.begin(), process.tasks.end(), [&](const auto& task) {
    return task.second.launch.owner() != launch.owner();
  });
}

void StormWorkers::StartWaiting(Process* process) {
  for (const auto& [key, launch] : std::exchange(process->waiting, {})) OnLaunch(process, launch);
}

void StormWorkers::OnLaunch(Process* process, const LaunchTask& launch) {
  const TaskKey key{launch.job_id(), launch.attempt()};
  if (process->tasks.contains(key)) return;
  if (RunsOthers(*process, launch)) {
    process->waiting[key] = launch;
    return;
  }
  if (!absl::EndsWith(launch.executable_digest(), " on " + MeshText(launch.spec().mesh()))) {
    storm_->Violate(absl::StrCat(launch.executable_digest(), " is launched on ", MeshText(launch.spec().mesh())));
  }
  storm_->CheckOwner(launch);
  std::shared_ptr<Gang>& gang = gangs_[key];
  if (gang == nullptr) {
    gang = std::make_shared<Gang>();
    gang->key = key;
    gang->launch = launch;
    gang->finished = launch.first_step();
    gang->launched_ns = storm_->NowNs();
    const auto index = storm_->indexes().find(launch.checkpoint_uri());
    gang->contents =
        index != storm_->indexes().end() ? index->second.contents : ContentsAt(storm_->KeyOf(launch.job_id()), 0);
  }
  Task& task = process->tasks[key];
  task.launch = launch;
  task.is_quick = absl::StartsWith(launch.executable_digest(), kQuick);
  if (task.is_quick && !process->replaces_code) {
    storm_->Violate(absl::StrCat(process->id, ", which cannot replace code, gets ", launch.executable_digest()));
  }
  task.gang = gang;
  task.saved_step = launch.checkpoint_uri().empty() ? -1 : launch.first_step();
  task.has_read = launch.checkpoint_uri().empty();
  if (!task.has_read) {
    storm_->After(storm_->Between(1, 60), [this, id = process->id, key, generation = launch.generation()] {
      ReadState(id, key, generation);
    });
  }
  task.is_first = launch.peers(0).worker_id() == process->id;
  gang->members[process->number] = {process, &task};
  if (!gang->scheduled) {
    gang->scheduled = true;
    storm_->After(storm_->Between(20, 150), [this, key] { Step(key); });
  }
}

void StormWorkers::OnStopAt(Process* process, const StopTaskAt& stop) {
  Task* task = Find(process, {stop.job_id(), stop.attempt()}, stop.generation());
  if (task == nullptr) return;
  WorkerMessage message;
  TaskStopAnswer* answer = message.mutable_stop_answer();
  Name(task->launch, answer);
  answer->set_step(stop.step());
  answer->set_accepted(task->gang->finished <= stop.step());
  answer->set_current(task->gang->finished + 1);
  if (answer->accepted() && task->stop_at != stop.step()) {
    task->stop_at = stop.step();
    if (task->end.has_value() && task->end->has_stopped()) task->end.reset();  // The task continues to the later step.
  }
  SendUp(process, std::move(message));
  // The task cannot continue, because peers ended while it was stopped.
  if (task->gang->over && !task->end.has_value()) FailTask(process, task);
}

void StormWorkers::OnCheckpointAt(Process* process, const CheckpointAt& checkpoint) {
  Task* task = Find(process, {checkpoint.job_id(), checkpoint.attempt()}, checkpoint.generation());
  if (task == nullptr) return;
  WorkerMessage message;
  CheckpointAtAnswer* answer = message.mutable_checkpoint_answer();
  Name(task->launch, answer);
  answer->set_step(checkpoint.step());
  answer->set_accepted(task->gang->finished < checkpoint.step());
  answer->set_current(task->gang->finished + 1);
  if (answer->accepted()) task->checkpoint_steps.insert(checkpoint.step());
  SendUp(process, std::move(message));
}

void StormWorkers::OnCommitted(Process* process, const CheckpointIsCommitted& committed) {
  Task* task = Find(process, {committed.job_id(), committed.attempt()}, committed.generation());
  if (task == nullptr) return;
  task->shards.erase(task->shards.begin(), task->shards.upper_bound(committed.step()));
}

void StormWorkers::OnAcknowledge(Process* process, const Acknowledge& acknowledge) {
  Task* task = Find(process, {acknowledge.job_id(), acknowledge.attempt()}, acknowledge.generation());
  if (task == nullptr) return;
  while (!task->metrics.empty() && task->metrics.front().step() <= acknowledge.through_step())
    task->metrics.pop_front();
}

bool StormWorkers::IsWell(const std::string& id) const {
  for (const auto& process : processes_) {
    if (process->id != id) continue;
    const bool is_cut = process->refused || process->cut_up || process->cut_down || process->data_cut;
    const int64_t trouble_ns = std::max(process->trouble_ns, process->stopped_until_ns);
    return process->up && !is_cut && storm_->NowNs() - trouble_ns > kSurelyWellMs * kNsPerMs;
  }
  return false;
}

bool StormWorkers::IsReachable(const std::string& id) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    const bool is_cut = process->refused || process->cut_up || process->cut_down || process->data_cut;
    const bool has_disk = storm_->NowNs() >= std::max(process->disk_full_until_ns, process->disk_slow_until_ns);
    return process->id == id && process->registered && !is_cut && has_disk &&
           storm_->NowNs() >= process->stopped_until_ns;
  });
}

bool StormWorkers::HasDied(const std::string& id) const {
  return std::none_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    return process->id == id && (process->up || process->lost_power);
  });
}

int64_t StormWorkers::StoppedUntilNs() const {
  int64_t latest_ns = 0;
  for (const auto& process : processes_) latest_ns = std::max(latest_ns, process->stopped_until_ns);
  return latest_ns;
}

void StormWorkers::CheckEnd() const {
  for (const auto& process : processes_) {
    for (const auto& [key, task] : process->tasks) {
      // A job that waited endlessly may have been resized at the end, and now runs.
      const auto job = storm_->model().jobs().find(key.first);
      const bool is_current =
          job != storm_->model().jobs().end() && job->second.running && job->second.attempt == key.second;
      if (is_current) continue;
      storm_->Violate(absl::StrCat(process->id, " still has a task of ", key.first, ", attempt ", key.second));
    }
  }
}

// --- Faults.

void StormWorkers::Cut(Process* process) {
  process->cut_since_ns = process->trouble_ns = storm_->NowNs();
  const uint64_t how = storm_->random().Below(5);
  process->refused = how == 0;
  process->cut_up = how == 1 || how == 2;
  process->cut_down = how == 1 || how == 3;
  process->data_cut = how == 4 || (how == 1 && storm_->random().Below(2) == 0);
  if (process->refused) Disconnect(process);
  storm_->Note(absl::StrCat(process->id, " is cut in way ", how));
  storm_->After(storm_->Between(50, 15'000), [this, process] { Heal(process); });
}

// Restores all paths. The messages that the cut held back arrive.
void StormWorkers::Heal(Process* process) {
  process->trouble_ns = storm_->NowNs();
  process->refused = process->cut_up = process->cut_down = process->data_cut = false;
  for (WorkerMessage& message : std::exchange(process->held_up, {})) SendUp(process, std::move(message));
  for (const CoordinatorMessage& message : std::exchange(process->held_down, {})) Deliver(process->connection, message);
}

std::string StormWorkers::AnyId() { return processes_[storm_->random().Below(processes_.size())]->id; }

void StormWorkers::Lose(Process* process, int64_t away_ms) {
  Kill(process);
  storm_->After(away_ms, [this, process] { StartProcess(process); });
}

void StormWorkers::Break(int64_t connection, bool kill) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  Process* process = found->second;
  process->trouble_ns = storm_->NowNs();
  if (kill) return Lose(process, storm_->Between(50, 5000));
  storm_->Note(absl::StrCat("the connection of ", process->id, " breaks"));
  Disconnect(process);
}

StormWorkers::Process* StormWorkers::FindProcess(const std::string& id) {
  const auto found =
      std::find_if(processes_.begin(), processes_.end(), [&](const auto& process) { return process->id == id; });
  return found == processes_.end() ? nullptr : found->get();
}

// Cuts both directions between the worker and the coordinator. Its peers still reach it.
void StormWorkers::CutControl(Process* process, int64_t ms) {
  process->cut_since_ns = process->trouble_ns = storm_->NowNs();
  process->cut_up = process->cut_down = true;
  storm_->Note(absl::StrCat("the coordinator cannot reach ", process->id, " for ", ms, " ms"));
  storm_->After(ms, [this, process] { Heal(process); });
}

void StormWorkers::CutDuringAdoption(const std::string& late, const std::string& lost) {
  Process* const first = FindProcess(late);
  Process* const second = FindProcess(lost);
  if (first == nullptr || second == nullptr || first == second) return;
  storm_->KeepQuiet(20'000);
  CutControl(first, storm_->Between(12'000, 15'000));
  storm_->After(storm_->Between(800, 1500), [this, second] { CutControl(second, storm_->Between(15'000, 17'000)); });
}

void StormWorkers::InjectFault() {
  if (InjectHostFault()) return;
  const bool is_rack = storm_->kind() == StormKind::kStops && storm_->Has(StormFault::kRack);
  if (is_rack && storm_->random().Below(5) == 0) {  // A rack loses power.
    // The time without new faults lasts until the workers count as lost and jobs shrink.
    if (storm_->random().Below(2) == 0) storm_->KeepQuiet(25'000);
    for (int i = 0; i < kRack; ++i) {
      Lose(processes_[storm_->random().Below(processes_.size())].get(), storm_->Between(3000, 25'000));
    }
    return;
  }
  Process* process = processes_[storm_->random().Below(processes_.size())].get();
  const bool dies = storm_->kind() == StormKind::kLong && storm_->random().Below(2) == 0;
  const uint64_t what = dies ? kTaskDies : storm_->random().Below(std::size(kFaultOf));
  if (!storm_->Has(kFaultOf[what])) return;
  switch (what) {
    case 0:
    case 1: {
      Kill(process);
      const uint64_t fate = storm_->random().Below(12);
      process->stays_away = fate <= 1;
      if (fate == 1 && !std::exchange(one_is_gone_, true)) process->is_gone = has_lost_ids_ = true;
      if (fate == 2 || fate == 3) {  // The worker comes back under another id.
        process->id = absl::StrCat(process->id, "'");
        has_lost_ids_ = true;
      }
      if (!process->stays_away) storm_->After(storm_->Between(50, 5000), [this, process] { StartProcess(process); });
      break;
    }
    case 2:
    case 3:
      Cut(process);
      break;
    case 4:
      storm_->Note(absl::StrCat(process->id, " is stopped"));
      process->stopped_until_ns =
          std::max(process->stopped_until_ns, storm_->NowNs() + storm_->Between(200, 15'000) * kNsPerMs);
      break;
    case 5: {
      if (!process->up) break;
      process->leaving = true;
      WorkerMessage message;
      message.mutable_draining();
      if (process->registered) SendUp(process, std::move(message));
      if (process->tasks.empty() || storm_->random().Below(2) != 0) break;
      storm_->After(storm_->Between(0, 400), [this, process, life = process->life] {  // It may die before it may exit.
        if (storm_->is_calm() || !process->up || process->life != life) return;
        Lose(process, storm_->Between(50, 2000));
      });
      break;
    }
    default:
      if (!process->tasks.empty()) ExitTask(process, &process->tasks.begin()->second);
  }
}

// The process of one task dies. Its daemon reports this until the coordinator tells it to forget the attempt.
void StormWorkers::ExitTask(Process* process, Task* task) {
  storm_->Note(absl::StrCat("a task of ", process->id, " dies"));
  WorkerMessage message;
  AttemptExited* exited = message.mutable_exited();
  Name(task->launch, exited);
  exited->set_pid(77);
  exited->set_exit_code(-1);
  exited->set_signal(9);
  exited->set_step(task->gang->finished);
  task->end = std::move(message);
  task->shards.clear();
  task->metrics.clear();
  EndGang(task->gang.get(), process->id);
  if (process->registered) SendUnanswered(process, task);
}

void StormWorkers::Repair() {
  cut_hosts_.clear();
  for (const auto& process : processes_) {
    Heal(process.get());  // A stopped process continues by itself.
    process->misreads_until_ns = process->disk_full_until_ns = process->disk_slow_until_ns = 0;
    process->stays_away = false;
    if (!process->up) storm_->After(storm_->Between(50, 2000), [this, p = process.get()] { StartProcess(p); });
  }
}

}  // namespace xlad::simulation
