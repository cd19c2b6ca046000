#include "worker/worker_core.h"

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"

namespace xlad::worker {
namespace {

// The number of metrics in one message: one second of steps that take 1 ms.
constexpr size_t kMaxMetricsPerMessage = 1000;

template <typename Message>
TaskKey KeyOf(const Message& message) {
  return {message.job_id(), message.attempt()};
}

template <typename Message>
void SetKey(const TaskKey& key, Message* message) {
  message->set_job_id(key.job_id);
  message->set_attempt(key.attempt);
}

}  // namespace

Actions WorkerCore::Handle(Event event, int64_t now_ns) {
  now_ns_ = now_ns;
  std::visit([this](const auto& e) { On(e); }, event);
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
  if (connected_) actions_.push_back(Send{std::move(message)});
}

void WorkerCore::FillRunning(google::protobuf::RepeatedPtrField<RunningTask>* running) const {
  for (const auto& [key, record] : tasks_) {
    RunningTask* task = running->Add();
    SetKey(key, task);
    task->set_generation(record.launch.generation());
    task->set_step(record.task->finished_steps());
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
  for (auto& [key, record] : tasks_) record.sent_metrics = 0;
}

// Sends again everything that the coordinator has not answered.
void WorkerCore::OnRegistered() {
  registered_ = true;
  next_heartbeat_ns_ = now_ns_ + options_.heartbeat_ms * kNsPerMs;
  for (auto& [key, record] : tasks_) {
    if (record.ready && !record.started) SendReady(key);
    if (record.done > 0) SendDone(key, record.done);
    SendMetrics(key, &record);
    if (record.end.has_value()) SendMessage(*record.end);
  }
  if (drain_until_ns_.has_value()) {
    WorkerMessage message;
    message.mutable_draining();
    SendMessage(std::move(message));
  }
}

void WorkerCore::On(const Tick&) {
  if (registered_ && now_ns_ >= next_metrics_ns_) {
    next_metrics_ns_ = now_ns_ + options_.metrics_ms * kNsPerMs;
    for (auto& [key, record] : tasks_) SendMetrics(key, &record);
  }
  if (registered_ && now_ns_ >= next_heartbeat_ns_) {
    next_heartbeat_ns_ = now_ns_ + options_.heartbeat_ms * kNsPerMs;
    WorkerMessage message;
    FillRunning(message.mutable_heartbeat()->mutable_running());
    SendMessage(std::move(message));
  }
  if (!drain_until_ns_.has_value()) return;
  if (tasks_.empty() && !connected_) {
    actions_.push_back(Exit{absl::OkStatus()});
  } else if (now_ns_ >= *drain_until_ns_) {
    actions_.push_back(Exit{tasks_.empty()
                                ? absl::OkStatus()
                                : absl::DeadlineExceededError(absl::StrCat(
                                      tasks_.size(), " tasks did not stop within the grace of ", options_.grace_ms,
                                      " ms; their jobs continue from their last saved state"))});
  }
}

void WorkerCore::On(const StopRequested&) {
  if (drain_until_ns_.has_value()) return;
  drain_until_ns_ = now_ns_ + options_.grace_ms * kNsPerMs;
  LogInfo("worker drains", {{"tasks", absl::StrCat(tasks_.size())}, {"grace_ms", absl::StrCat(options_.grace_ms)}});
  if (!registered_) return;
  WorkerMessage message;
  message.mutable_draining();
  SendMessage(std::move(message));
}

void WorkerCore::On(const CoordinatorMessage& message) {
  switch (message.message_case()) {
    case CoordinatorMessage::kRegistered:
      return OnRegistered();
    case CoordinatorMessage::kLaunch:
      return OnLaunch(message.launch());
    case CoordinatorMessage::kStart:
      return Lease(KeyOf(message.start()), message.start().lease_until_step(), /*start=*/true);
    case CoordinatorMessage::kRenew:
      return Lease(KeyOf(message.renew()), message.renew().lease_until_step(), /*start=*/false);
    case CoordinatorMessage::kStopAt:
      return OnStopAt(message.stop_at());
    case CoordinatorMessage::kAbort:
      return OnAbort(message.abort());
    case CoordinatorMessage::kAcknowledge:
      return OnAcknowledge(message.acknowledge());
    case CoordinatorMessage::kMayExit:
      if (drain_until_ns_.has_value()) actions_.push_back(Exit{absl::OkStatus()});
      return;
    case CoordinatorMessage::kForget:
      return Forget(KeyOf(message.forget()), "");
    case CoordinatorMessage::kSession:
      return OnSession(message.session());
    default:
      LogWarn("the coordinator sent a message of an unknown kind: it is of a later version");
  }
}

void WorkerCore::OnLaunch(const LaunchTask& launch) {
  const TaskKey key = KeyOf(launch);
  if (Find(key) != nullptr) return;  // Repeated after a reconnection.
  // An earlier attempt of the job has ended, even if its end has not been reported here.
  std::vector<TaskKey> old;
  for (const auto& [other, record] : tasks_) {
    if (other.job_id == key.job_id && other.attempt < key.attempt) old.push_back(other);
    if (other.job_id == key.job_id && other.attempt > key.attempt) return;  // Stale.
  }
  for (const TaskKey& other : old) Forget(other, "a later attempt of the job starts");
  LogInfo("task launched", {{"job", key.job_id},
                            {"attempt", absl::StrCat(key.attempt)},
                            {"devices", absl::StrCat(launch.devices_size())},
                            {"first_step", absl::StrCat(launch.first_step())}});
  TaskRecord& record = tasks_[key];
  record.launch = launch;
  record.task = make_task_(launch);
}

void WorkerCore::Lease(const TaskKey& key, int64_t lease_until_step, bool start) {
  TaskRecord* record = Find(key);
  if (record == nullptr) return;
  record->started = record->started || start;
  record->task->Lease(lease_until_step);
}

void WorkerCore::OnStopAt(const StopTaskAt& message) {
  const TaskKey key = KeyOf(message);
  TaskRecord* record = Find(key);
  if (record == nullptr) return;
  const bool is_stopped = record->end.has_value() && record->end->has_stopped();
  const bool is_over = record->end.has_value() && !is_stopped;
  WorkerMessage answer;
  TaskStopAnswer* stop = answer.mutable_stop_answer();
  SetKey(key, stop);
  stop->set_step(message.step());
  stop->set_accepted(!is_over && record->task->StopAt(message.step()));
  stop->set_current(record->task->begun_steps());
  if (stop->accepted() && is_stopped && record->end->stopped().step() != message.step()) record->end.reset();
  SendMessage(std::move(answer));
}

void WorkerCore::OnAbort(const AbortTask& message) {
  const TaskKey key = KeyOf(message);
  TaskRecord* record = Find(key);
  if (record == nullptr) return;
  const std::string step = absl::StrCat(record->task->finished_steps());
  LogError("the coordinator aborts the task",
           {{"job", key.job_id}, {"attempt", absl::StrCat(key.attempt)}, {"step", step}, {"reason", message.reason()}});
  Forget(key, absl::StrCat("the coordinator aborted the attempt: ", message.reason()));
}

void WorkerCore::OnAcknowledge(const Acknowledge& message) {
  TaskRecord* record = Find(KeyOf(message));
  if (record == nullptr) return;
  while (!record->metrics.empty() && record->metrics.front().step() <= message.through_step()) {
    record->metrics.pop_front();
    if (record->sent_metrics > 0) --record->sent_metrics;
  }
}

void WorkerCore::Forget(const TaskKey& key, const std::string& why) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  if (!why.empty()) found->second.task->Abort({absl::CancelledError(why), ""});
  actions_.push_back(DropTask{std::move(found->second.task)});
  tasks_.erase(found);
}

void WorkerCore::SendReady(const TaskKey& key) {
  WorkerMessage message;
  SetKey(key, message.mutable_ready());
  SendMessage(std::move(message));
}

// An answer includes all commands before it.
void WorkerCore::SendDone(const TaskKey& key, int64_t sequence) {
  WorkerMessage message;
  SetKey(key, message.mutable_session_answer());
  message.mutable_session_answer()->set_sequence(sequence);
  SendMessage(std::move(message));
}

void WorkerCore::OnSession(const SessionCommand& command) {
  TaskRecord* record = Find(KeyOf(command));
  if (record == nullptr || command.sequence() <= record->received) return;  // Repeated.
  if (command.sequence() != record->received + 1) {
    record->task->Abort({absl::InternalError(absl::StrCat("found session command ", command.sequence(), ", expected ",
                                                          record->received + 1)),
                         ""});
    return;
  }
  ++record->received;
  record->task->Command(command);
}

void WorkerCore::On(const CommandIsDone& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  record->done = event.sequence;
  if (registered_) SendDone(event.key, event.sequence);
}

void WorkerCore::SendMetrics(const TaskKey& key, TaskRecord* record) {
  while (registered_ && record->sent_metrics < record->metrics.size()) {
    WorkerMessage message;
    TaskSteps* steps = message.mutable_steps();
    SetKey(key, steps);
    for (size_t i = 0; i < kMaxMetricsPerMessage && record->sent_metrics < record->metrics.size(); ++i) {
      *steps->add_metrics() = record->metrics[record->sent_metrics++];
    }
    SendMessage(std::move(message));
  }
}

void WorkerCore::On(const TaskIsReady& event) {
  TaskRecord* record = Find(event.key);
  if (record == nullptr) return;
  record->ready = true;
  if (registered_) SendReady(event.key);
}

void WorkerCore::On(const TaskStepped& event) {
  TaskRecord* record = Find(event.key);
  if (record != nullptr) record->metrics.push_back(event.metrics);
}

void WorkerCore::End(const TaskKey& key, WorkerMessage message) {
  TaskRecord* record = Find(key);
  SendMetrics(key, record);
  record->end = message;
  if (registered_) SendMessage(std::move(message));
}

void WorkerCore::On(const TaskHasStopped& event) {
  if (Find(event.key) == nullptr) return;
  LogInfo(
      "task stopped",
      {{"job", event.key.job_id}, {"attempt", absl::StrCat(event.key.attempt)}, {"step", absl::StrCat(event.step)}});
  WorkerMessage message;
  SetKey(event.key, message.mutable_stopped());
  message.mutable_stopped()->set_step(event.step);
  End(event.key, std::move(message));
}

void WorkerCore::On(const TaskHasFinished& event) {
  if (Find(event.key) == nullptr) return;
  LogInfo("task finished", {{"job", event.key.job_id}, {"attempt", absl::StrCat(event.key.attempt)}});
  WorkerMessage message;
  SetKey(event.key, message.mutable_finished());
  End(event.key, std::move(message));
}

void WorkerCore::On(const TaskHasFailed& event) {
  const TaskRecord* record = Find(event.key);
  if (record == nullptr || (record->end.has_value() && record->end->has_failed())) return;
  const std::string error(event.failure.status.message());
  LogError("task failed", {{"job", event.key.job_id},
                           {"attempt", absl::StrCat(event.key.attempt)},
                           {"step", absl::StrCat(event.step)},
                           {"suspect_worker", event.failure.suspect_worker},
                           {"error", error}});
  WorkerMessage message;
  TaskFailed* failed = message.mutable_failed();
  SetKey(event.key, failed);
  failed->set_step(event.step);
  failed->set_error(error);
  failed->set_error_code(static_cast<int>(event.failure.status.code()));
  failed->set_suspect_worker(event.failure.suspect_worker);
  End(event.key, std::move(message));
}

}  // namespace xlad::worker
