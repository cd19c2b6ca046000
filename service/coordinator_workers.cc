// Workers: registration, heartbeats, reports about tasks, and lost workers. Jobs are in coordinator.cc.
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "service/coordinator.h"
#include "service/messages.h"

namespace xlad::service {
namespace {

// The number of steps between the furthest worker and the step at which an attempt stops: half a second of steps, so
// that the message arrives before any worker begins that step.
int64_t StopMargin(double step_ms) {
  if (step_ms <= 0) return 16;
  return 2 + static_cast<int64_t>(std::ceil(std::min(500.0 / step_ms, 1e6)));
}

bool IsPeer(const Job& job, const std::string& worker_id) {
  return std::any_of(job.placed.peers().begin(), job.placed.peers().end(),
                     [&](const Peer& peer) { return peer.worker_id() == worker_id; });
}

}  // namespace

void CoordinatorCore::Send(const std::string& worker_id, CoordinatorMessage message, Actions* actions) {
  const auto worker = workers_.find(worker_id);
  if (worker == workers_.end() || worker->second.connection == 0) return;
  actions->push_back(SendMessage{worker->second.connection, std::move(message)});
}

void CoordinatorCore::SendToAll(const Job& job, const CoordinatorMessage& message, Actions* actions) {
  for (const Peer& peer : job.placed.peers()) Send(peer.worker_id(), message, actions);
}

std::string CoordinatorCore::WorkerText(const Job& job, const std::string& worker_id) const {
  for (const Peer& peer : job.placed.peers()) {
    if (peer.worker_id() == worker_id) {
      return absl::StrCat("worker ", worker_id, " (host ", peer.host(), ", pid ", peer.pid(), ")");
    }
  }
  return absl::StrCat("worker ", worker_id);
}

void CoordinatorCore::OnWorkerMessage(ConnectionId connection, const WorkerMessage& message, Actions* actions) {
  if (message.has_register_()) return OnRegister(connection, message.register_(), actions);
  const auto known = connections_.find(connection);
  if (known == connections_.end()) {  // Not registered, or replaced by a newer connection.
    actions->push_back(CloseConnection{connection});
    return;
  }
  const std::string worker_id = known->second;
  workers_.at(worker_id).last_heard_ns = environment_.clock->NowNs();
  switch (message.message_case()) {
    case WorkerMessage::kHeartbeat: return OnHeartbeat(worker_id, message.heartbeat(), actions);
    case WorkerMessage::kReady: return OnReady(worker_id, message.ready(), actions);
    case WorkerMessage::kSteps: return OnSteps(worker_id, message.steps(), actions);
    case WorkerMessage::kStopAnswer: return OnStopAnswer(worker_id, message.stop_answer(), actions);
    case WorkerMessage::kStopped: return OnStopped(worker_id, message.stopped(), actions);
    case WorkerMessage::kFinished: return OnFinished(worker_id, message.finished(), actions);
    case WorkerMessage::kFailed: return OnFailed(worker_id, message.failed(), actions);
    case WorkerMessage::kDraining: return OnDraining(worker_id, actions);
    case WorkerMessage::kSessionAnswer: return OnSessionAnswer(worker_id, message.session_answer(), actions);
    default: actions->push_back(CloseConnection{connection});
  }
}

void CoordinatorCore::OnRegister(ConnectionId connection, const RegisterWorker& message, Actions* actions) {
  const std::string& id = message.worker_id();
  if (id.empty() || message.devices() < 1) {
    actions->push_back(CloseConnection{connection});
    return;
  }
  const auto old = workers_.find(id);
  if (old != workers_.end()) {
    if (old->second.connection != 0 && old->second.connection != connection) {
      connections_.erase(old->second.connection);
      actions->push_back(CloseConnection{old->second.connection});
    }
    if (old->second.registration.incarnation() != message.incarnation()) {
      LoseWorker(id, "its process restarted", actions);
    }
  }
  WorkerInfo& worker = workers_[id];
  worker.registration = message;
  worker.connection = connection;
  worker.last_heard_ns = environment_.clock->NowNs();
  worker.gone_since_ns = 0;
  worker.state = WorkerState::kAlive;
  connections_[connection] = id;
  LogInfo("worker registered", {{"worker", id}, {"host", message.host()}, {"pid", absl::StrCat(message.pid())},
                                {"devices", absl::StrCat(message.devices())}});
  CoordinatorMessage registered;
  registered.mutable_registered()->set_coordinator_incarnation(incarnation_);
  Send(id, std::move(registered), actions);
  for (const RunningTask& task : message.running()) {
    OnReportedTask(id, task, actions);
    if (const Job* job = Find(task.job_id(), task.attempt()); job != nullptr) RepeatCommands(*job, id, actions);
  }
  NoteMissingTasks(message, actions);
  Schedule(actions);
}

// Handles a task that a worker reports as running. Records it if its attempt is current, otherwise aborts it.
void CoordinatorCore::OnReportedTask(const std::string& worker_id, const RunningTask& task, Actions* actions) {
  Job* job = Find(task.job_id(), task.attempt());
  if (job == nullptr || !IsPeer(*job, worker_id)) {
    Send(worker_id, AbortMessage(task.job_id(), task.attempt(), "this attempt has ended"), actions);
    return;
  }
  AttemptInfo& attempt = attempts_[job->id];
  attempt.present.insert(worker_id);
  attempt.progress[worker_id] = task.step();
  job->step = std::max(job->step, task.step());
  if (!attempt.awaiting_adoption || std::ssize(attempt.present) < job->placed.peers_size()) return;
  attempt.awaiting_adoption = false;
  attempt.placed_ns = environment_.clock->NowNs();
  if (job->state == RUNNING) {
    JobEvent event = NewEvent(job->id);
    event.mutable_adopted()->set_attempt(job->attempt);
    event.mutable_adopted()->set_step(job->step);
    if (!Record({event}).ok()) attempt.awaiting_adoption = true;
  }
  actions->push_back(JobChanged{job->id});
}

// Ends the attempts whose task is missing in a worker's registration: the worker restarted and lost the task.
void CoordinatorCore::NoteMissingTasks(const RegisterWorker& message, Actions* actions) {
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (!job.attempt_running || !IsPeer(job, message.worker_id())) continue;
    const bool has_it = std::any_of(message.running().begin(), message.running().end(), [&](const RunningTask& task) {
      return task.job_id() == id && task.attempt() == job.attempt;
    });
    if (has_it) continue;
    EndAttempt(&job,
               absl::StrCat(WorkerText(job, message.worker_id()), " reconnected without its task at step ", job.step,
                            ": its process (pid ", message.pid(), ") restarted"),
               message.worker_id(), actions);
  }
}

void CoordinatorCore::OnHeartbeat(const std::string& worker_id, const Heartbeat& message, Actions* actions) {
  for (const RunningTask& task : message.running()) {
    Job* job = Find(task.job_id(), task.attempt());
    if (job == nullptr || !IsPeer(*job, worker_id)) {
      OnReportedTask(worker_id, task, actions);
      continue;
    }
    AttemptInfo& attempt = attempts_[job->id];
    attempt.progress[worker_id] = task.step();
    if (task.step() > job->step) {
      job->step = task.step();
      actions->push_back(JobChanged{job->id});
    }
    if (job->state == RUNNING && attempt.stop_at < 0 &&
        task.step() > attempt.lease_until - options_.lease_steps / 2 && attempt.lease_until < job->spec.steps()) {
      attempt.lease_until = task.step() + options_.lease_steps;
      CoordinatorMessage renew;
      renew.mutable_renew()->set_job_id(job->id);
      renew.mutable_renew()->set_attempt(job->attempt);
      renew.mutable_renew()->set_lease_until_step(attempt.lease_until);
      SendToAll(*job, renew, actions);
    }
  }
}

void CoordinatorCore::OnReady(const std::string& worker_id, const TaskReady& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr) return;
  AttemptInfo& attempt = attempts_[job->id];
  attempt.ready.insert(worker_id);
  CoordinatorMessage start;
  start.mutable_start()->set_job_id(job->id);
  start.mutable_start()->set_attempt(job->attempt);
  if (job->state == RUNNING) {  // The worker did not receive the first start message.
    start.mutable_start()->set_lease_until_step(attempt.lease_until);
    return Send(worker_id, std::move(start), actions);
  }
  if (std::ssize(attempt.ready) < job->placed.peers_size()) return;
  JobEvent event = NewEvent(job->id);
  event.mutable_started()->set_attempt(job->attempt);
  if (!Record({event}).ok()) {
    return EndAttempt(job, "the job log cannot be written", "", actions);
  }
  attempt.lease_until = job->placed.first_step() + options_.lease_steps;
  start.mutable_start()->set_lease_until_step(attempt.lease_until);
  SendToAll(*job, start, actions);
  actions->push_back(JobChanged{job->id});
}

void CoordinatorCore::OnSteps(const std::string& worker_id, const TaskSteps& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr || message.metrics().empty()) return;
  const std::vector<StepMetrics> metrics(message.metrics().begin(), message.metrics().end());
  if (!environment_.log->AppendMetrics(job->id, metrics).ok()) {
    // The worker keeps metrics until they are acknowledged and sends them again after it reconnects. Later messages on
    // this connection must be ignored, because one of them could end the job without these metrics.
    const ConnectionId connection = workers_.at(worker_id).connection;
    actions->push_back(CloseConnection{connection});
    return OnWorkerGone(connection, actions);
  }
  const StepMetrics& last = metrics.back();
  job->step = std::max(job->step, last.step() + 1);
  NoteLoss(last, job);
  attempts_[job->id].step_ms = last.step_ms();
  CoordinatorMessage acknowledge;
  acknowledge.mutable_acknowledge()->set_job_id(job->id);
  acknowledge.mutable_acknowledge()->set_attempt(job->attempt);
  acknowledge.mutable_acknowledge()->set_through_step(last.step());
  Send(worker_id, std::move(acknowledge), actions);
  actions->push_back(JobChanged{job->id});
}

// Stops all workers of the attempt before the same step, which no worker has begun yet. If that step is beyond the last
// one, the attempt runs to its end.
void CoordinatorCore::StopAttempt(Job* job, const std::string& reason, Actions* actions) {
  AttemptInfo& attempt = attempts_[job->id];
  if (job->state != RUNNING || job->spec.session()) {  // There is no state to save.
    return EndAttempt(job, reason, "", actions);
  }
  int64_t furthest = job->step;
  for (const auto& [worker, step] : attempt.progress) furthest = std::max(furthest, step);
  attempt.stop_at = furthest + StopMargin(attempt.step_ms);
  attempt.stop_reason = reason;
  attempt.stop_accepted.clear();
  attempt.stopped.clear();
  if (attempt.stop_at >= job->spec.steps()) attempt.stop_at = job->spec.steps();
  CoordinatorMessage stop;
  stop.mutable_stop_at()->set_job_id(job->id);
  stop.mutable_stop_at()->set_attempt(job->attempt);
  stop.mutable_stop_at()->set_step(attempt.stop_at);
  SendToAll(*job, stop, actions);
}

void CoordinatorCore::OnStopAnswer(const std::string& worker_id, const TaskStopAnswer& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr) return;
  AttemptInfo& attempt = attempts_[job->id];
  if (message.step() != attempt.stop_at) return;
  attempt.progress[worker_id] = std::max(attempt.progress[worker_id], message.current());
  if (message.accepted()) {
    attempt.stop_accepted.insert(worker_id);
  } else {
    StopAttempt(job, attempt.stop_reason, actions);  // The worker has passed the step: all stop at a later one.
  }
}

void CoordinatorCore::OnStopped(const std::string& worker_id, const TaskStopped& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr) return;
  AttemptInfo& attempt = attempts_[job->id];
  if (message.step() != attempt.stop_at) return;
  attempt.stopped.insert(worker_id);
  CompleteAttempt(job, actions);
}

// Ends an attempt that all workers have finished or stopped. Every tick repeats this until the end is recorded.
void CoordinatorCore::CompleteAttempt(Job* job, Actions* actions) {
  AttemptInfo& attempt = attempts_[job->id];
  const size_t workers = job->placed.peers_size();
  if (attempt.assembling) return;
  if (attempt.finished.size() == workers && !job->spec.keep_final_state()) {
    return EndJob(job, SUCCEEDED, "", "", actions);
  }
  if (attempt.finished.size() != workers && attempt.stopped.size() != workers) return;
  attempt.assembling = true;
  const int64_t step = attempt.finished.size() == workers ? job->spec.steps() : attempt.stop_at;
  actions->push_back(AssembleState{job->id, job->attempt, step});
}

void CoordinatorCore::OnFinished(const std::string& worker_id, const TaskFinished& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr) {
    return Send(worker_id, ForgetMessage(message.job_id(), message.attempt()), actions);
  }
  attempts_[job->id].finished.insert(worker_id);
  CompleteAttempt(job, actions);
}

void CoordinatorCore::OnFailed(const std::string& worker_id, const TaskFailed& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr) {
    return Send(worker_id, ForgetMessage(message.job_id(), message.attempt()), actions);
  }
  AttemptInfo& attempt = attempts_[job->id];
  job->step = std::max(job->step, message.step());
  if (attempt.failure.empty()) {
    attempt.failure = absl::StrCat(WorkerText(*job, worker_id), " failed at step ", message.step(), ": ",
                                   message.error());
    attempt.failed_ns = environment_.clock->NowNs();
  }
  if (attempt.suspect.empty()) attempt.suspect = message.suspect_worker();
  CheckAttempt(job, actions);
}

void CoordinatorCore::OnDraining(const std::string& worker_id, Actions* actions) {
  WorkerInfo& worker = workers_.at(worker_id);
  if (worker.draining) return;
  worker.draining = true;
  LogInfo("worker drains", {{"worker", worker_id}});
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (!job.attempt_running || !IsPeer(job, worker_id) || attempts_[id].stop_at >= 0) continue;
    StopAttempt(&job, absl::StrCat("stopped because ", WorkerText(job, worker_id), " drains"), actions);
  }
  ReleaseDrainedWorkers(actions);
}

// Lets draining workers exit that have no running attempt.
void CoordinatorCore::ReleaseDrainedWorkers(Actions* actions) {
  for (auto& [id, worker] : workers_) {
    if (!worker.draining || worker.state != WorkerState::kAlive) continue;
    const std::string& worker_id = id;
    const bool busy = std::any_of(attempts_.begin(), attempts_.end(),
                                  [&](const auto& entry) { return IsPeer(jobs_.at(entry.first), worker_id); });
    if (busy) continue;
    worker.state = WorkerState::kDrained;
    CoordinatorMessage message;
    message.mutable_may_exit();
    Send(id, std::move(message), actions);
  }
}

void CoordinatorCore::OnWorkerGone(ConnectionId connection, Actions* actions) {
  const auto known = connections_.find(connection);
  if (known == connections_.end()) return;
  const std::string worker_id = known->second;
  connections_.erase(known);
  WorkerInfo& worker = workers_.at(worker_id);
  worker.connection = 0;
  worker.gone_since_ns = environment_.clock->NowNs();
  if (worker.state == WorkerState::kDrained) {
    workers_.erase(worker_id);
    return;
  }
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (job.attempt_running && IsPeer(job, worker_id)) CheckAttempt(&job, actions);
  }
}

void CoordinatorCore::LoseWorker(const std::string& worker_id, const std::string& why, Actions* actions) {
  WorkerInfo& worker = workers_.at(worker_id);
  if (worker.state == WorkerState::kLost) return;
  worker.state = WorkerState::kLost;
  LogWarn("worker lost", {{"worker", worker_id}, {"host", worker.registration.host()},
                          {"pid", absl::StrCat(worker.registration.pid())}, {"why", why}});
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (!job.attempt_running || !IsPeer(job, worker_id) || attempts_[id].awaiting_adoption) continue;
    EndAttempt(&job, absl::StrCat(WorkerText(job, worker_id), " was lost at step ", job.step, ": ", why), worker_id,
               actions);
  }
}

// Ends an attempt that reported a failure. If the connection of the suspected worker is closed, that worker is lost;
// otherwise, after the grace period, the reason is the reported error.
void CoordinatorCore::CheckAttempt(Job* job, Actions* actions) {
  AttemptInfo& attempt = attempts_[job->id];
  if (attempt.failure.empty()) return;
  const auto suspect = workers_.find(attempt.suspect);
  if (suspect != workers_.end() && suspect->second.connection == 0) {
    return LoseWorker(attempt.suspect, "its connections closed", actions);
  }
  const bool waited =
      environment_.clock->NowNs() - attempt.failed_ns >= options_.reconnect_grace_ms * kNsPerMs;
  if (attempt.suspect.empty() || waited) EndAttempt(job, std::string(attempt.failure), "", actions);
}

void CoordinatorCore::OnTick(Actions* actions) {
  const int64_t now_ns = environment_.clock->NowNs();
  std::vector<std::pair<std::string, std::string>> lost;
  for (const auto& [id, worker] : workers_) {
    if (worker.state != WorkerState::kAlive) continue;
    if (worker.connection == 0 && now_ns - worker.gone_since_ns >= options_.reconnect_grace_ms * kNsPerMs) {
      lost.emplace_back(id, "its connection closed");
    } else if (worker.connection != 0 && now_ns - worker.last_heard_ns >= options_.heartbeat_timeout_ms * kNsPerMs) {
      lost.emplace_back(id, absl::StrCat("no heartbeat for ", options_.heartbeat_timeout_ms, " ms"));
    }
  }
  for (const auto& [id, why] : lost) {
    const ConnectionId connection = workers_.at(id).connection;
    LoseWorker(id, why, actions);
    if (connection != 0) actions->push_back(CloseConnection{connection});
  }
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (!job.attempt_running) continue;
    AttemptInfo& attempt = attempts_[id];
    const int64_t age_ms = (now_ns - attempt.placed_ns) / kNsPerMs;
    if (attempt.awaiting_adoption && age_ms >= options_.adopt_window_ms) {
      for (const Peer& peer : job.placed.peers()) {
        if (attempt.present.contains(peer.worker_id())) continue;
        EndAttempt(&job, absl::StrCat(WorkerText(job, peer.worker_id()), " was lost at step ", job.step,
                                      ": it did not reconnect after the coordinator's restart"),
                   peer.worker_id(), actions);
        break;
      }
    } else if (job.state == STARTING && !attempt.awaiting_adoption && age_ms >= options_.start_timeout_ms) {
      EndAttempt(&job, absl::StrCat("not all workers were ready after ", options_.start_timeout_ms, " ms"), "",
                 actions);
    } else {
      CompleteAttempt(&job, actions);
      if (job.attempt_running) CheckAttempt(&job, actions);
    }
  }
  ExpireSessions(actions);
  Schedule(actions);
}

}  // namespace xlad::service
