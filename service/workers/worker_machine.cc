#include "service/workers/worker_machine.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "base/log.h"
#include "proto/protocol.h"
#include "service/state/messages.h"

namespace xlad::service {
namespace {

constexpr size_t kMaxIdBytes = 256;
// A second process with the id of a connected worker is refused after this time if the first process still sends
// messages.
constexpr int64_t kRivalMs = 1000;
// If more workers become suspect at once, the others are only counted in the log.
constexpr size_t kMaxLogged = 10;

std::string HowSilent(const Worker& worker, int64_t silent_ns) {
  const std::string duration = absl::StrCat(silent_ns / kNsPerMs, " ms");
  if (worker.connection != ConnectionId()) return absl::StrCat("no heartbeat for ", duration);
  return absl::StrCat(worker.gone_why.empty() ? "" : absl::StrCat("it was refused: ", worker.gone_why, "; "),
                      "it has not been connected for ", duration);
}

}  // namespace

void WorkerMachine::OnMessage(ConnectionId connection, const WorkerMessage& message) {
  if (message.has_register_()) return OnRegister(connection, message.register_());
  const auto known = context_.connections.find(connection);
  // The connection is unknown if the worker has not registered, or if a newer connection has replaced this one.
  if (known == context_.connections.end()) return context_.Close(connection);
  const WorkerId id = known->second;
  Worker& worker = context_.workers.at(id);
  if (message.incarnation() != 0 && message.incarnation() != worker.registration.incarnation()) {
    return context_.Close(connection);
  }
  context_.NoteMessage(&worker);
  if (worker.state == WorkerState::kSuspect) {
    worker.state = WorkerState::kAlive;
    worker.since_ns = context_.now_ns;
    worker.reason.clear();
    context_.reschedule = true;
  }
  switch (message.message_case()) {
    case WorkerMessage::kHeartbeat: return OnHeartbeat(id, message.heartbeat());
    case WorkerMessage::kReady: return attempts_.OnReady(id, message.ready());
    case WorkerMessage::kSteps: return attempts_.OnSteps(id, message.steps());
    case WorkerMessage::kStopAnswer: return attempts_.OnStopAnswer(id, message.stop_answer());
    case WorkerMessage::kStopped: return attempts_.OnStopped(id, message.stopped());
    case WorkerMessage::kFinished: return attempts_.OnFinished(id, message.finished());
    case WorkerMessage::kFailed: return attempts_.OnFailed(id, message.failed());
    case WorkerMessage::kExited: return attempts_.OnExited(id, message.exited());
    case WorkerMessage::kShardWritten: return attempts_.OnShardWritten(id, message.shard_written());
    case WorkerMessage::kShardFailed:
      return attempts_.checkpoints().OnShardFailed(id, message.shard_failed());
    case WorkerMessage::kCheckpointAnswer: return attempts_.checkpoints().OnAnswer(id, message.checkpoint_answer());
    case WorkerMessage::kTrace: return attempts_.OnTrace(id, message.trace());
    case WorkerMessage::kDraining: return OnLeaving(&worker);
    default: context_.Close(connection);
  }
}

void WorkerMachine::Refuse(ConnectionId connection, const std::string& why) {
  CoordinatorMessage message;
  message.set_term(context_.jobs.term().value());
  message.mutable_registered()->set_coordinator_incarnation(context_.incarnation);
  message.mutable_registered()->set_protocol(kProtocol);
  message.mutable_registered()->set_refused(why);
  context_.effects.actions.push_back(SendMessage{connection, std::move(message), nullptr});
  context_.Close(connection);
}

bool WorkerMachine::IsRefused(ConnectionId connection, const RegisterWorker& message) {
  if (message.worker_id().empty() || message.worker_id().size() > kMaxIdBytes || message.devices() < 1 ||
      message.devices() > kMaxWorkerDevices) {
    Refuse(connection,
           absl::StrCat("found a worker id of ", message.worker_id().size(), " bytes and ", message.devices(),
                        " devices, expected 1 to ", kMaxIdBytes, " bytes and 1 to ", kMaxWorkerDevices, " devices"));
    return true;
  }
  if (!IsProtocolAccepted(kProtocol, message.protocol())) {
    Refuse(connection, absl::StrCat("worker ", message.worker_id(), " uses protocol ", message.protocol(),
                                    message.version().empty() ? "" : absl::StrCat(" (xlad ", message.version(), ")"),
                                    ", but this coordinator supports ", std::max(1, kProtocol - 1), " to ", kProtocol,
                                    "; use a worker and a coordinator of the same version of xlad"));
    return true;
  }
  const WorkerId id(message.worker_id());
  const auto registered = context_.connections.find(connection);
  if (registered != context_.connections.end() && registered->second != id) {
    Refuse(connection, absl::StrCat("found worker ", id.str(), " on the connection of worker ",
                                    registered->second.str(), ", expected one connection for each worker"));
    return true;
  }
  if (IsOfAnotherUser(connection, message)) return true;
  const Worker* known = context_.FindWorker(id);
  const bool is_rival = known != nullptr && known->connection != ConnectionId() && known->connection != connection &&
                        known->registration.incarnation() != message.incarnation() &&
                        context_.now_ns - known->last_message_ns < context_.options.suspect_ms * kNsPerMs;
  if (!is_rival) {
    rivals_.erase(id);
    return false;
  }
  Rival& rival = rivals_[id];
  if (rival.incarnation != message.incarnation()) rival = {message.incarnation(), context_.now_ns};
  const bool both_live =
      known->last_message_ns > rival.since_ns && context_.now_ns - rival.since_ns >= kRivalMs * kNsPerMs;
  if (both_live) {
    Refuse(connection,
           absl::StrCat("another worker is registered as ", message.worker_id(), " (host ", known->registration.host(),
                        ", pid ", known->registration.pid(), "); start this one with another --id"));
  } else {  // The first process may have ended although its connection is still open, so the second process may retry.
    context_.Close(connection);
  }
  return true;
}

bool WorkerMachine::IsOfAnotherUser(ConnectionId connection, const RegisterWorker& message) {
  const WorkerId id(message.worker_id());
  const Worker* const known = context_.FindWorker(id);
  std::set<std::string> users;
  if (known != nullptr) users.insert(known->registration.user());
  // After a restart of the coordinator, the log has the workers of running attempts.
  if (const auto recovered = context_.recovered.find(id); recovered != context_.recovered.end()) {
    for (const JobId& job : recovered->second) {
      const Job* const placed = context_.jobs.Find(job);
      if (placed == nullptr || !context_.attempts.contains(job)) continue;
      for (const Peer& peer : placed->placed.peers()) {
        if (peer.worker_id() == id.str() && !peer.user().empty()) users.insert(peer.user());
      }
    }
  }
  users.erase(message.user());
  if (users.empty()) return false;
  LogWarn("a worker is refused, because its id belongs to another user",
          {{"worker", id.str()}, {"user", message.user()}, {"owner", *users.begin()}});
  Refuse(connection, absl::StrCat("worker ", id.str(), " belongs to a different user than the token of this worker (",
                                  message.user(), "); start this one with another --id, or with a token of that user; ",
                                  WhenIdIsFree(known)));
  return true;
}

// Says when another user may have the id of this worker, which is null if only the log names it.
std::string WorkerMachine::WhenIdIsFree(const Worker* worker) const {
  const int64_t keep_ms = context_.options.keep_lost_workers_ms;
  if (worker == nullptr) return "the id is free when the jobs that ran on that worker have ended";
  if (worker->state != WorkerState::kLost) {
    return absl::StrCat("the id is free when that worker has drained and ended (SIGTERM), or ",
                        keep_ms / 1000, " s after it was lost");
  }
  const int64_t left_ns = worker->since_ns + keep_ms * kNsPerMs - context_.now_ns;
  return absl::StrCat("that worker is lost, so the id is free in ", std::max<int64_t>(0, left_ns) / kNsPerSecond + 1,
                      " s");
}

void WorkerMachine::OnRegister(ConnectionId connection, const RegisterWorker& message) {
  if (IsRefused(connection, message)) return;
  const WorkerId id(message.worker_id());
  Worker& worker = context_.workers[id];
  if (worker.connection != ConnectionId() && worker.connection != connection) {
    context_.connections.erase(worker.connection);
    context_.Close(worker.connection);
  }
  const bool is_new_process = worker.registration.incarnation() != message.incarnation();
  worker.id = id;
  worker.connection = connection;
  context_.NoteMessage(&worker);
  worker.registration = message;
  worker.registration.clear_running();
  worker.gone_why.clear();
  if (is_new_process) worker.leaving = false;
  worker.state = WorkerState::kAlive;
  worker.reason.clear();
  worker.since_ns = context_.now_ns;
  context_.connections[connection] = id;
  // Reserves the devices of attempts that were placed on the worker before this coordinator process started.
  if (const auto recovered = context_.recovered.extract(id); !recovered.empty()) {
    for (const JobId& job : recovered.mapped()) {
      // A later attempt of the job may have been placed on other workers since then.
      const Job* placed = context_.jobs.Find(job);
      if (!context_.attempts.contains(job)) continue;
      for (const Peer& peer : placed->placed.peers()) {
        if (peer.worker_id() == id.str()) Context::Occupy(*placed, peer, &worker);
      }
    }
  }
  LogInfo("worker registered", {{"worker", id.str()},
                                {"host", message.host()},
                                {"pid", absl::StrCat(message.pid())},
                                {"devices", absl::StrCat(message.devices())}});
  CoordinatorMessage registered;
  registered.mutable_registered()->set_coordinator_incarnation(context_.incarnation);
  registered.mutable_registered()->set_protocol(kProtocol);
  registered.mutable_registered()->set_answers_clock(true);
  registered.mutable_registered()->set_takes_shard_failures(true);
  context_.Send(id, std::move(registered));
  attempts_.OnRegistered(id, message);
  for (const RunningTask& task : message.running()) {
    attempts_.OnReported(id, task);
  }
  if (context_.jobs.drained().contains(id)) attempts_.VacateWorker(id, "is drained");
  context_.reschedule = true;
}

void WorkerMachine::OnHeartbeat(const WorkerId& worker, const Heartbeat& message) {
  for (const RunningTask& task : message.running()) attempts_.OnReported(worker, task);
}

void WorkerMachine::OnLeaving(Worker* worker) {
  if (!worker->leaving) LogInfo("worker drains", {{"worker", worker->id.str()}});
  worker->leaving = true;
  attempts_.VacateWorker(worker->id, "drains");
  context_.reschedule = true;
}

void WorkerMachine::ReleaseLeaving() {
  for (auto& [id, worker] : context_.workers) {
    if (!worker.leaving || !worker.jobs.empty() || worker.state == WorkerState::kMayExit) continue;
    if (worker.connection == ConnectionId()) continue;
    worker.state = WorkerState::kMayExit;
    CoordinatorMessage message;
    message.mutable_may_exit();
    context_.Send(id, std::move(message));
  }
}

void WorkerMachine::OnGone(ConnectionId connection, const std::string& why) {
  const auto known = context_.connections.find(connection);
  if (known == context_.connections.end()) return;
  const WorkerId id = known->second;
  context_.connections.erase(known);
  Worker& worker = context_.workers.at(id);
  worker.connection = ConnectionId();
  worker.gone_ns = context_.now_ns;
  worker.gone_why = why;
  context_.reschedule = true;
  if (worker.state == WorkerState::kMayExit) {
    context_.workers.erase(id);
    return;
  }
  attempts_.OnWorkerGone(id);
}

// Records one event for each job, because the workers of a large job all become silent at once if the coordinator's own
// link fails.
void WorkerMachine::Doubt(const std::vector<Worker*>& workers) {
  std::map<JobId, std::vector<const Worker*>> by_job;
  for (size_t w = 0; w < workers.size(); ++w) {
    Worker& worker = *workers[w];
    worker.state = WorkerState::kSuspect;
    worker.since_ns = context_.now_ns;
    worker.reason = HowSilent(worker, context_.now_ns - worker.last_message_ns);
    for (const JobId& id : worker.jobs) by_job[id].push_back(&worker);
    if (w >= kMaxLogged) continue;
    LogWarn("worker is suspect", {{"worker", worker.id.str()},
                                  {"host", worker.registration.host()},
                                  {"pid", absl::StrCat(worker.registration.pid())},
                                  {"why", worker.reason}});
  }
  if (workers.size() > kMaxLogged) {
    LogWarn("more workers are suspect", {{"workers", absl::StrCat(workers.size() - kMaxLogged)}});
  }
  for (const auto& [id, silent] : by_job) {
    context_.Changed(id);
    RecordSilence(id, silent);
  }
}

void WorkerMachine::RecordSilence(const JobId& id, const std::vector<const Worker*>& workers) {
  const Job* job = context_.jobs.Find(id);
  const auto attempt = context_.attempts.find(id);
  if (job == nullptr || attempt == context_.attempts.end()) return;
  const Worker* first = nullptr;
  int64_t others = -1;
  for (const Worker* worker : workers) {
    if (!attempt->second.silent.insert(worker->id.str()).second) continue;
    if (first == nullptr) first = worker;
    ++others;
  }
  if (first == nullptr) return;
  std::string who = absl::StrCat(Context::WorkerText(*job, first->id.str()), " is silent at step ", job->step);
  std::string then = "it is lost";
  if (others > 0) {
    who = absl::StrCat(Context::WorkerText(*job, first->id.str()), " and ", Counted(others, "other worker"),
                       " of the job are silent at step ", job->step);
    then = "they are lost";
  }
  if (others + 1 == job->placed.peers_size() && others > 0) {
    absl::StrAppend(&who, " (all at once: check the network of the coordinator)");
  }
  JobEvent event = context_.NewEvent(id);
  WorkerSilent* silent = event.mutable_worker_silent();
  silent->set_attempt(job->attempt);
  silent->set_worker(first->id.str());
  silent->set_step(job->step);
  silent->set_reason(
      absl::StrCat(who, ": ", first->reason, "; ", then, " after ", context_.options.lost_ms, " ms"));
  context_.Record(std::move(event));
}

void WorkerMachine::Lose(Worker* worker, const std::string& why) {
  worker->state = WorkerState::kLost;
  worker->reason = why;
  worker->since_ns = context_.now_ns;
  LogWarn("worker lost", {{"worker", worker->id.str()},
                          {"host", worker->registration.host()},
                          {"pid", absl::StrCat(worker->registration.pid())},
                          {"why", why}});
  if (worker->connection != ConnectionId()) {
    context_.Close(worker->connection);
    context_.connections.erase(worker->connection);
    worker->connection = ConnectionId();
  }
  attempts_.OnWorkerLost(worker->id, why);
  context_.reschedule = true;
}

void WorkerMachine::OnTick() {
  const CoordinatorOptions& options = context_.options;
  context_.cut_links.OnTick(context_.now_ns);
  std::vector<WorkerId> lost, forgotten;
  std::vector<Worker*> silent;
  for (auto& [id, worker] : context_.workers) {
    const int64_t silent_ns = context_.now_ns - worker.last_message_ns;
    if (worker.state == WorkerState::kLost) {
      if (context_.now_ns - worker.since_ns >= options.keep_lost_workers_ms * kNsPerMs) forgotten.push_back(id);
    } else if (silent_ns >= options.lost_ms * kNsPerMs) {
      lost.push_back(id);
    } else if (silent_ns >= options.suspect_ms * kNsPerMs && worker.state == WorkerState::kAlive) {
      silent.push_back(&worker);
    }
  }
  Doubt(silent);
  for (const WorkerId& id : lost) {
    Worker& worker = context_.workers.at(id);
    Lose(&worker, HowSilent(worker, context_.now_ns - worker.last_message_ns));
  }
  for (const WorkerId& id : forgotten) {
    if (context_.workers.at(id).jobs.empty()) context_.workers.erase(id);
  }
}

ListWorkersResponse WorkerMachine::List(const Shows& shows) const {
  const auto is_shown = [&](const JobId& id) {
    const Job* const job = context_.jobs.Find(id);
    return shows == nullptr || (job != nullptr && shows(*job));
  };
  ListWorkersResponse response;
  for (const auto& [id, worker] : context_.workers) {
    ListWorkersResponse::Worker* out = response.add_workers();
    const bool drained = context_.jobs.drained().contains(id);
    const std::vector<std::string> cut_off = context_.cut_links.Of(id.str());
    out->set_id(id.str());
    out->set_host(worker.registration.host());
    out->set_pid(worker.registration.pid());
    out->set_devices(worker.registration.devices());
    out->set_state(StateName(worker, drained));
    const auto shown = std::find_if(worker.jobs.begin(), worker.jobs.end(), is_shown);
    if (shown != worker.jobs.end()) out->set_job_id(shown->str());
    out->set_version(worker.registration.version());
    out->set_silent_ms((context_.now_ns - worker.last_message_ns) / kNsPerMs);
    out->set_reason(!worker.reason.empty() ? worker.reason
                    : worker.leaving       ? "it was asked to end (SIGTERM)"
                    : drained              ? "an operator drained it; xlad undrain makes it take work again"
                    : cut_off.empty()      ? ""
                                           : absl::StrCat("it does not reach ", absl::StrJoin(cut_off, ", "),
                                                          "; it does reach the coordinator"));
    out->set_incarnation(worker.registration.incarnation());
  }
  return response;
}

absl::Status WorkerMachine::Drain(const WorkerId& id) {
  if (context_.jobs.drained().contains(id)) return absl::OkStatus();
  if (context_.FindWorker(id) == nullptr) {
    return absl::NotFoundError(absl::StrCat("no worker ", id.str(), "; xlad status lists the workers"));
  }
  JobEvent event = context_.NewEvent(JobId());
  event.mutable_drain_changed()->set_worker_id(id.str());
  event.mutable_drain_changed()->set_drain(true);
  context_.Record(std::move(event));
  attempts_.VacateWorker(id, "is drained");
  context_.reschedule = true;
  return absl::OkStatus();
}

absl::Status WorkerMachine::Undrain(const WorkerId& id) {
  if (!context_.jobs.drained().contains(id)) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", id.str(), " is not drained"));
  }
  JobEvent event = context_.NewEvent(JobId());
  event.mutable_drain_changed()->set_worker_id(id.str());
  event.mutable_drain_changed()->set_drain(false);
  context_.Record(std::move(event));
  context_.reschedule = true;
  return absl::OkStatus();
}

}  // namespace xlad::service
