#include "worker/worker_core.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/log.h"
#include "worker/about.h"

namespace xlad::worker {
namespace {

// The maximum number of metrics in one message: one second of steps that take 1 ms.
constexpr size_t kMaxMetricsPerMessage = 1000;
// The maximum number of metrics of a task that are sent before they are acknowledged. The coordinator handles these
// rows in some 20 ms, so a task whose steps are faster than the coordinator's log delays other requests by this time at
// most. In the long run, it makes at most this many steps in the time of a round trip (PassLease).
constexpr size_t kMaxUnacknowledged = 5 * kMaxMetricsPerMessage;
constexpr size_t kMaxSamples = 256;  // The maximum number of clock samples that are kept; one is taken about every 2 s.
constexpr size_t kMaxTraces = 256;   // The maximum number of traces of a task that wait to be sent.

template <typename Message>
void SetKey(const LaunchTask& launch, Message* message) {
  message->set_job_id(launch.job_id());
  message->set_attempt(launch.attempt());
  message->set_generation(launch.generation());
}

// The number of this worker's devices that a task needs.
int DevicesOf(const LaunchTask& launch) { return launch.devices_size() / std::max(1, launch.shards_per_device()); }

// Whether `launch` is that of a later attempt of the same job. A coordinator that was restored from a backup uses
// numbers of attempts again, with later generations.
bool IsLater(const LaunchTask& launch, const LaunchTask& other) {
  return std::pair(launch.generation(), launch.attempt()) > std::pair(other.generation(), other.attempt());
}

std::optional<std::string> OwnerOf(const LaunchTask& launch) {
  return launch.has_owner() ? std::optional(launch.owner()) : std::nullopt;
}

// Sets the fields of a task's answer to a request that names a step.
template <typename Event, typename Message>
void SetAnswer(const LaunchTask& launch, const Event& event, Message* answer) {
  SetKey(launch, answer);
  answer->set_step(event.step);
  answer->set_accepted(event.accepted);
  answer->set_current(event.current);
}

}  // namespace

Actions WorkerCore::Handle(Event event, int64_t now_ns) {
  now_ns_ = now_ns;
  const auto handle = [this](const auto& e) {
    if (!IsOfDroppedTask(e)) On(e);
  };
  std::visit(handle, event);
  return std::exchange(actions_, {});
}

Actions WorkerCore::Shutdown() {
  while (!tasks_.empty()) Forget(tasks_.begin()->first, "the worker ends");
  return std::exchange(actions_, {});
}

WorkerCore::TaskRecord* WorkerCore::Find(const TaskKey& key) {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : &found->second;
}

void WorkerCore::SendMessage(WorkerMessage message) {
  message.set_incarnation(options_.identity.incarnation());
  if (connected_) actions_.push_back(Send{std::move(message)});
}

void WorkerCore::FillRunning(google::protobuf::RepeatedPtrField<RunningTask>* running) const {
  for (const auto& [key, record] : tasks_) {
    RunningTask* task = running->Add();
    SetKey(record.launch, task);
    task->set_step(record.task == nullptr ? record.launch.first_step() : record.task->finished_steps());
    if (record.task == nullptr) continue;
    for (const SilentPeer& peer : record.task->silent_peers()) *task->add_silent() = peer;
  }
}

void WorkerCore::On(const Connected&) {
  connected_ = true;
  registered_ = false;
  WorkerMessage message;
  *message.mutable_register_() = options_.identity;
  FillRunning(message.mutable_register_()->mutable_running());
  SendMessage(std::move(message));
}

void WorkerCore::On(const Disconnected&) {
  connected_ = registered_ = false;
  for (auto& [key, record] : tasks_) {
    record.sent_metrics = 0;
    record.end_is_sent = record.shard_failed_is_sent = false;
    for (const auto& [step, shard] : record.shards) record.unsent_shards.insert(step);
  }
}

// Sends again everything that the coordinator has not answered.
void WorkerCore::OnRegistered(const Registered& message) {
  if (!message.refused().empty()) {
    actions_.push_back(
        Exit{absl::FailedPreconditionError(absl::StrCat("the coordinator refused this worker: ", message.refused()))});
    return;
  }
  registered_ = true;
  reports_exits_ = message.protocol() >= 1;
  sends_traces_ = message.answers_clock();
  reports_shard_failures_ = message.takes_shard_failures();
  next_heartbeat_ns_ = now_ns_ + options_.heartbeat_ms * kNsPerMs;
  for (auto& [key, record] : tasks_) {
    if (record.ready && !record.started) SendReady(record);
    SendMetrics(&record);
    SendTraces(&record);
    SendEnd(&record);
  }
  SendExits();
  if (drain_until_ns_.has_value()) RequestDrain();
}

void WorkerCore::RequestDrain() {
  WorkerMessage message;
  message.mutable_draining();
  SendMessage(std::move(message));
}

void WorkerCore::On(const Tick&) {
  for (auto& [key, record] : tasks_) PassLease(&record);
  if (registered_ && now_ns_ >= next_metrics_ns_) {
    next_metrics_ns_ = now_ns_ + options_.metrics_ms * kNsPerMs;
    for (auto& [key, record] : tasks_) SendMetrics(&record);
  }
  if (registered_ && now_ns_ >= next_heartbeat_ns_) {
    next_heartbeat_ns_ = now_ns_ + options_.heartbeat_ms * kNsPerMs;
    WorkerMessage message;
    FillRunning(message.mutable_heartbeat()->mutable_running());
    SendMessage(std::move(message));
  }
  if (!drain_until_ns_.has_value()) return;
  if (tasks_.empty() && (!registered_ || now_ns_ >= *drain_until_ns_)) {
    actions_.push_back(Exit{absl::OkStatus(), work_moved_});
  } else if (now_ns_ >= *drain_until_ns_) {
    actions_.push_back(Exit{absl::DeadlineExceededError(
        absl::StrCat(Counted(tasks_.size(), "task"), " did not stop within the grace period of ", options_.grace_ms,
                     " ms", registered_ ? "" : ", in which the coordinator could not be reached",
                     "; the jobs continue from their last saved state"))});
  }
}

void WorkerCore::On(const StopRequested&) {
  if (drain_until_ns_.has_value()) return;
  drain_until_ns_ = now_ns_ + options_.grace_ms * kNsPerMs;
  LogInfo("worker drains", {{"tasks", absl::StrCat(tasks_.size())}, {"grace_ms", absl::StrCat(options_.grace_ms)}});
  if (registered_) return RequestDrain();
  if (tasks_.empty()) return;
  LogWarn("the coordinator cannot be reached: the tasks continue until it can, or until the grace period is over");
}

bool WorkerCore::IsCurrent(const CoordinatorMessage& message) {
  if (message.term() != 0 && message.term() < term_) {
    LogWarn("a message of an earlier coordinator is ignored",
            {{"term", absl::StrCat(message.term())}, {"current", absl::StrCat(term_)}});
    return false;
  }
  term_ = std::max(term_, message.term());
  const About about = AboutOf(message);
  const TaskRecord* record = Find(about.key);
  const bool is_stale = record != nullptr && about.generation != 0 && about.generation < record->launch.generation();
  if (is_stale) {
    LogWarn("a message of an earlier generation is ignored",
            {{"job", about.key.job_id}, {"generation", absl::StrCat(about.generation)}});
  }
  return !is_stale;
}

void WorkerCore::On(const CoordinatorMessage& message) {
  if (!IsCurrent(message)) return;
  switch (message.message_case()) {
    case CoordinatorMessage::kRegistered: return OnRegistered(message.registered());
    case CoordinatorMessage::kLaunch: return OnLaunch(message.launch());
    case CoordinatorMessage::kStart: return OnStart(message.start());
    case CoordinatorMessage::kRenew: return Lease(KeyOf(message.renew()), message.renew().lease_until_step());
    case CoordinatorMessage::kStopAt: return OnStopAt(message.stop_at());
    case CoordinatorMessage::kCheckpointAt: return OnCheckpointAt(message.checkpoint_at());
    case CoordinatorMessage::kCommitted: return OnCommitted(message.committed());
    case CoordinatorMessage::kReplaceCode: return OnReplaceCode(message.replace_code());
    case CoordinatorMessage::kAbort: return OnAbort(message.abort());
    case CoordinatorMessage::kAcknowledge: return OnAcknowledge(message.acknowledge());
    case CoordinatorMessage::kMayExit:
      if (drain_until_ns_.has_value()) actions_.push_back(Exit{absl::OkStatus(), work_moved_});
      return;
    case CoordinatorMessage::kForget:
      Forget(KeyOf(message.forget()), "");
      return StartTasks();
    default:
      LogWarn("the coordinator sent a message of an unknown kind: it is of a later version");
  }
}

void WorkerCore::OnLaunch(const LaunchTask& launch) {
  const TaskKey key = KeyOf(launch);
  const auto ending = ending_.find(key);
  if (ending != ending_.end() && ending->second.generation >= launch.generation()) return;  // It was repeated.
  // Earlier attempts of the job have ended, even if this worker has not received their ends.
  std::vector<TaskKey> old;
  for (const auto& [other, record] : tasks_) {
    if (other.job_id != key.job_id) continue;
    if (!IsLater(launch, record.launch)) return;  // The launch was repeated, or is stale.
    old.push_back(other);
  }
  for (const TaskKey& other : old) Forget(other, "a later attempt of the job starts");
  LogInfo("task launched", {{"job", key.job_id},
                            {"attempt", absl::StrCat(key.attempt)},
                            {"devices", absl::StrCat(DevicesOf(launch))},
                            {"first_step", absl::StrCat(launch.first_step())}});
  tasks_[key].launch = launch;
  StartTasks();
  if (tasks_[key].task == nullptr) LogInfo("the task waits until other processes have ended", {{"job", key.job_id}});
}

bool WorkerCore::RunsOthers(const LaunchTask& launch) const {
  const auto is_other = [&](const std::optional<std::string>& owner) {
    return launch.has_owner() && owner.has_value() && *owner != launch.owner();
  };
  return std::any_of(ending_.begin(), ending_.end(), [&](const auto& task) { return is_other(task.second.owner); }) ||
         std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
           const TaskRecord& record = task.second;
           return record.task != nullptr && !record.exited && is_other(OwnerOf(record.launch));
         });
}

void WorkerCore::StartTasks() {
  int free = options_.identity.devices();
  for (const auto& [key, task] : ending_) free -= task.devices;
  for (const auto& [key, record] : tasks_) {
    if (record.task != nullptr) free -= DevicesOf(record.launch);
  }
  for (auto& [key, record] : tasks_) {
    if (record.task != nullptr || ending_.contains(key)) continue;
    // If no process is about to end, waiting cannot free devices, so the task starts.
    if (DevicesOf(record.launch) > free && !ending_.empty()) continue;
    if (RunsOthers(record.launch)) continue;
    free -= DevicesOf(record.launch);
    record.task = make_task_(record.launch);
  }
}

void WorkerCore::OnStart(const StartTask& message) {
  TaskRecord* record = Find(KeyOf(message));
  if (record == nullptr) return;
  record->started = true;
  if (record->task != nullptr && record->launch.spec().session()) record->task->Start(message);
  Lease(KeyOf(message), message.lease_until_step());
}

void WorkerCore::Lease(const TaskKey& key, int64_t lease_until_step) {
  TaskRecord* record = Find(key);
  if (record == nullptr) return;
  record->lease.Take(lease_until_step, now_ns_);
  PassLease(record);
}

// Limits the lease, so that the task waits when too many of its metrics are not acknowledged, instead of filling the
// memory.
void WorkerCore::PassLease(TaskRecord* record) {
  int64_t until = record->lease.At(now_ns_);
  if (record->task == nullptr || until < 0) return;
  if (!record->metrics.empty()) until = std::min(until, record->metrics.front().step() + options_.max_kept_metrics);
  if (until != std::exchange(record->passed_lease, until)) record->task->Lease(until);
}

void WorkerCore::OnStopAt(const StopTaskAt& message) {
  const TaskKey key = KeyOf(message);
  TaskRecord* record = Find(key);
  if (record == nullptr || record->task == nullptr) return;
  const bool is_over = record->end.has_value() && !record->end->has_stopped();
  if (!is_over) return record->task->StopAt(message.step());
  On(TaskAnsweredStop{key, message.step(), /*accepted=*/false, record->task->finished_steps()});
}

void WorkerCore::On(const TaskAnsweredStop& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  const bool is_stopped = record->end.has_value() && record->end->has_stopped();
  if (event.accepted && is_stopped && record->end->stopped().step() != event.step) record->end.reset();
  WorkerMessage answer;
  SetAnswer(record->launch, event, answer.mutable_stop_answer());
  if (registered_) SendMessage(std::move(answer));
}

void WorkerCore::OnCheckpointAt(const CheckpointAt& message) {
  TaskRecord* record = Find(KeyOf(message));
  if (record == nullptr || record->task == nullptr) return;
  if (!record->end.has_value()) return record->task->CheckpointAt(message.step());
  On(TaskAnsweredCheckpoint{KeyOf(message), message.step(), /*accepted=*/false, record->task->finished_steps()});
}

void WorkerCore::On(const TaskAnsweredCheckpoint& event) {
  const TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  WorkerMessage answer;
  SetAnswer(record->launch, event, answer.mutable_checkpoint_answer());
  if (registered_) SendMessage(std::move(answer));
}

void WorkerCore::On(const TaskWroteShard& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  record->shards[event.step] = event.shard;
  record->unsent_shards.insert(event.step);
  record->shard_failed.reset();
  SendMetrics(record);
}

void WorkerCore::On(const TaskFailedToSave& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  WorkerMessage message;
  ShardFailed* failed = message.mutable_shard_failed();
  SetKey(record->launch, failed);
  failed->set_step(event.step);
  failed->set_error(std::string(event.error.message()));
  failed->set_error_code(static_cast<int>(event.error.code()));
  failed->set_must_be_stored(event.must_be_stored);
  // Every failure to store a state that must be stored is reported, because the coordinator must know that the error
  // remains. The task retries at longer and longer intervals, so these messages are few.
  const bool is_known = !event.must_be_stored && record->shard_failed.has_value() &&
                        record->shard_failed->shard_failed().step() == failed->step() &&
                        record->shard_failed->shard_failed().error() == failed->error();
  record->shard_failed = std::move(message);
  if (!is_known) record->shard_failed_is_sent = false;
  if (registered_) SendShards(record);
}

// After the commit of a checkpoint, the steps before it are never run again, so their metrics must be sent before.
void WorkerCore::SendShards(TaskRecord* record) {
  const bool all_sent = record->sent_metrics == record->metrics.size();
  const int64_t next = all_sent ? INT64_MAX : record->metrics[record->sent_metrics].step();
  std::set<int64_t>& steps = record->unsent_shards;
  for (; !steps.empty() && *steps.begin() <= next; steps.erase(steps.begin())) {
    WorkerMessage message;
    SetKey(record->launch, message.mutable_shard_written());
    message.mutable_shard_written()->set_step(*steps.begin());
    *message.mutable_shard_written()->mutable_shard() = record->shards.at(*steps.begin());
    SendMessage(std::move(message));
  }
  // The coordinator takes a shard that arrives after a failure for a sign that the failure is over.
  if (!steps.empty() || !reports_shard_failures_ || !record->shard_failed.has_value()) return;
  if (!std::exchange(record->shard_failed_is_sent, true)) SendMessage(*record->shard_failed);
}

// Older checkpoints are unnecessary after a newer one has been committed.
void WorkerCore::OnCommitted(const CheckpointIsCommitted& message) {
  TaskRecord* record = Find(KeyOf(message));
  if (record == nullptr) return;
  record->shards.erase(record->shards.begin(), record->shards.upper_bound(message.step()));
  record->unsent_shards.erase(record->unsent_shards.begin(), record->unsent_shards.upper_bound(message.step()));
  if (record->task != nullptr) record->task->CheckpointIsCommitted(message.step());
}

// The coordinator repeats the message after each registration.
void WorkerCore::OnReplaceCode(const ReplaceCode& message) {
  TaskRecord* record = Find(KeyOf(message));
  if (record == nullptr || record->task == nullptr || record->end.has_value()) return;
  record->task->ReplaceCode(message.executable_digest());
}

void WorkerCore::OnAbort(const AbortTask& message) {
  const TaskKey key = KeyOf(message);
  TaskRecord* record = Find(key);
  if (record == nullptr) return;
  const std::string step = record->task == nullptr ? "-" : absl::StrCat(record->task->finished_steps());
  LogError("the coordinator aborts the task",
           {{"job", key.job_id}, {"attempt", absl::StrCat(key.attempt)}, {"step", step}, {"reason", message.reason()}});
  Forget(key, absl::StrCat("the coordinator aborted the attempt: ", message.reason()));
  StartTasks();
}

void WorkerCore::OnAcknowledge(const Acknowledge& message) {
  TaskRecord* record = Find(KeyOf(message));
  if (record == nullptr) return;
  const bool was_full = record->sent_metrics >= kMaxUnacknowledged;
  while (!record->metrics.empty() && record->metrics.front().step() <= message.through_step()) {
    record->metrics.pop_front();
    if (record->sent_metrics > 0) --record->sent_metrics;
  }
  if (was_full) SendMetrics(record);  // Otherwise metrics are sent together, once per metrics_ms.
  SendEnd(record);
  PassLease(record);
}

void WorkerCore::Forget(const TaskKey& key, const std::string& why) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  TaskRecord& record = found->second;
  const bool stopped = record.end.has_value() && record.end->has_stopped();
  work_moved_ = work_moved_ || (drain_until_ns_.has_value() && stopped);
  if (record.task != nullptr) {
    if (!why.empty()) record.task->Abort({absl::CancelledError(why), ""});
    if (options_.tasks_have_processes && !record.exited) {
      Ending& ending = ending_[key];
      ending = {DevicesOf(record.launch), OwnerOf(record.launch), record.launch.generation(), {}};
      if (!why.empty() && absl::StartsWith(record.launch.spec().checkpoint().uri(), "file:")) {
        SetKey(record.launch, &ending.exited.emplace());
        ending.exited->set_step(record.task->finished_steps());
      }
    }
    actions_.push_back(DropTask{std::move(record.task)});
  }
  tasks_.erase(found);
}

void WorkerCore::SendReady(const TaskRecord& record) {
  WorkerMessage message;
  SetKey(record.launch, message.mutable_ready());
  message.mutable_ready()->set_session_address(record.session_address);
  message.mutable_ready()->set_session_authority(record.session_authority);
  SendMessage(std::move(message));
}

void WorkerCore::SendMetrics(TaskRecord* record) {
  if (!registered_) return;
  const size_t limit = std::min(record->metrics.size(), kMaxUnacknowledged);
  while (record->sent_metrics < limit) {
    WorkerMessage message;
    TaskSteps* steps = message.mutable_steps();
    SetKey(record->launch, steps);
    for (size_t i = 0; i < kMaxMetricsPerMessage && record->sent_metrics < limit; ++i) {
      *steps->add_metrics() = record->metrics[record->sent_metrics++];
    }
    SendMessage(std::move(message));
  }
  SendShards(record);
}

void WorkerCore::SendEnd(TaskRecord* record) {
  const bool all_sent = record->sent_metrics == record->metrics.size() && record->unsent_shards.empty();
  if (!registered_ || !all_sent || !record->end.has_value() || std::exchange(record->end_is_sent, true)) return;
  SendMessage(*record->end);
}

void WorkerCore::On(const TaskIsReady& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  record->ready = true;
  record->session_address = event.session_address;
  record->session_authority = event.session_authority;
  if (registered_) SendReady(*record);
}

void WorkerCore::On(const TaskStepped& event) {
  TaskRecord* record = Find(event.key);
  if (record != nullptr) record->metrics.push_back(event.metrics);
}

void WorkerCore::On(const TaskTraced& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  record->traces.push_back(event.trace);
  if (record->traces.size() > kMaxTraces) {
    // The first trace is kept, because it names the instructions for all traces.
    record->traces.erase(record->traces.begin() + (record->traces.front().has_program() ? 1 : 0));
  }
  SendTraces(record);
}

void WorkerCore::On(const ClockSampled& event) {
  ++num_samples_;
  samples_.push_back(event.sample);
  if (samples_.size() > kMaxSamples) samples_.pop_front();
}

void WorkerCore::SendTraces(TaskRecord* record) {
  while (registered_ && sends_traces_ && !record->traces.empty()) {
    WorkerMessage message;
    TaskTrace* trace = message.mutable_trace();
    *trace = std::move(record->traces.front());
    record->traces.pop_front();
    SetKey(record->launch, trace);
    const int64_t fresh = std::min(num_samples_ - record->sent_samples, std::ssize(samples_));
    for (auto sample = samples_.end() - fresh; sample != samples_.end(); ++sample) *trace->add_clock() = *sample;
    record->sent_samples = num_samples_;
    SendMessage(std::move(message));
  }
}

void WorkerCore::End(TaskRecord* record, WorkerMessage message) {
  record->end = std::move(message);
  record->end_is_sent = false;
  SendMetrics(record);
  SendEnd(record);
}

void WorkerCore::SendExits() {
  if (!registered_) return;
  if (!reports_exits_) exits_.clear();
  for (WorkerMessage& message : std::exchange(exits_, {})) SendMessage(std::move(message));
}

void WorkerCore::On(const TaskHasStopped& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  LogInfo(
      "task stopped",
      {{"job", event.key.job_id}, {"attempt", absl::StrCat(event.key.attempt)}, {"step", absl::StrCat(event.step)}});
  WorkerMessage message;
  SetKey(record->launch, message.mutable_stopped());
  message.mutable_stopped()->set_step(event.step);
  End(record, std::move(message));
}

void WorkerCore::On(const TaskHasFinished& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  LogInfo("task finished", {{"job", event.key.job_id}, {"attempt", absl::StrCat(event.key.attempt)}});
  WorkerMessage message;
  SetKey(record->launch, message.mutable_finished());
  *message.mutable_finished()->mutable_report() = event.report;
  End(record, std::move(message));
}

// A process that ends before its task is dropped has failed, unless the task has reported that it finished or failed.
void WorkerCore::On(const TaskHasExited& event) {
  const ProcessEnd& end = event.end;
  if (const auto ending = ending_.extract(event.key); !ending.empty()) {
    if (ending.mapped().exited.has_value()) {
      exits_.push_back(
          ExitMessage(*std::move(ending.mapped().exited), end, ExitError(end, options_.memory_limit_bytes)));
      SendExits();
    }
    return StartTasks();
  }
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  record->exited = true;
  StartTasks();
  if (record->end.has_value() && !record->end->has_stopped()) return;
  const absl::Status error = ExitError(end, options_.memory_limit_bytes);
  if (!reports_exits_) {
    return On(TaskHasFailed{event.key, record->task->finished_steps(), {error, ""}});
  }
  LogError("attempt's process ended", {{"job", event.key.job_id},
                                       {"attempt", absl::StrCat(event.key.attempt)},
                                       {"step", absl::StrCat(record->task->finished_steps())},
                                       {"error", std::string(error.message())}});
  AttemptExited exited;
  SetKey(record->launch, &exited);
  exited.set_step(record->task->finished_steps());
  End(record, ExitMessage(std::move(exited), end, error));
}

void WorkerCore::On(const TaskHasFailed& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  if (record->end.has_value() && (record->end->has_failed() || record->end->has_exited())) return;
  const std::string error(event.failure.status.message());
  LogError("task failed", {{"job", event.key.job_id},
                           {"attempt", absl::StrCat(event.key.attempt)},
                           {"step", absl::StrCat(event.step)},
                           {"suspect_worker", event.failure.suspect_worker},
                           {"error", error}});
  WorkerMessage message;
  TaskFailed* failed = message.mutable_failed();
  SetKey(record->launch, failed);
  failed->set_step(event.step);
  failed->set_error(error);
  failed->set_error_code(static_cast<int>(event.failure.status.code()));
  failed->set_suspect_worker(event.failure.suspect_worker);
  End(record, std::move(message));
}

}  // namespace xlad::worker
