#include "service/attempts/attempt_machine.h"

#include <algorithm>
#include <memory>

#include "proto/mesh.h"
#include "proto/protocol.h"
#include "service/attempts/cut_link.h"
#include "service/attempts/damaged_checkpoint.h"
#include "service/attempts/pace.h"
#include "service/attempts/shared_folder.h"
#include "service/state/messages.h"

namespace xlad::service {
namespace {

// Whether an error with this code comes from the program itself, so that another attempt would end with it as well.
bool IsProgramError(int32_t code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
      return true;
    default:
      return false;
  }
}

// Sends the launch of the job's attempt to this peer. The part that is the same for all workers lists all peers. If
// each launch had its own copy, the copies of a job on 2,000 workers would take gigabytes. The part is therefore
// serialized once, and kept for workers that register again while the attempt starts.
void SendLaunch(Context& context, const Job& job, const Peer& peer) {
  Attempt& attempt = context.attempts.at(job.id);
  if (attempt.common_launch == nullptr) {
    CoordinatorMessage common;
    *common.mutable_launch() = LaunchOf(job);
    if (!context.options.share_workers) common.mutable_launch()->set_owner(job.owner);
    attempt.common_launch = std::make_shared<const std::string>(common.SerializeAsString());
  }
  CoordinatorMessage message;
  *message.mutable_launch() = LaunchFor(job, peer);
  context.Send(WorkerId(peer.worker_id()), std::move(message), attempt.common_launch);
}

// Marks the worker as suspect because `reporter` has lost its connection to it. The worker gets no new attempts until
// the coordinator receives a message from it.
void Suspect(Context& context, const std::string& worker_id, const WorkerId& reporter) {
  Worker* worker = context.FindWorker(WorkerId(worker_id));
  if (worker == nullptr || worker->state != WorkerState::kAlive) return;
  worker->state = WorkerState::kSuspect;
  worker->since_ns = context.now_ns;
  worker->reason = absl::StrCat("worker ", reporter.str(), " has lost its connection to it");
}

// Returns a worker of a starting attempt that has been without a connection for too long, or null if there is none. The
// worker may have been dead when it was chosen. The wait is shorter if the worker has not reported the attempt, because
// its peers then do not notice that it is gone.
const Worker* MissingWorker(const Context& context, const Job& job, const Attempt& attempt) {
  for (const Peer& peer : job.placed.peers()) {
    const auto found = context.workers.find(WorkerId(peer.worker_id()));
    if (found == context.workers.end() || found->second.connection != ConnectionId()) continue;
    const bool is_launched = attempt.launched.contains(peer.worker_id());
    const int64_t wait_ms = is_launched ? context.options.suspect_ms : context.options.failure_grace_ms;
    const int64_t since_ns = std::max(found->second.gone_ns, attempt.placed_ns);
    if (context.now_ns - since_ns >= wait_ms * kNsPerMs) return &found->second;
  }
  return nullptr;
}

}  // namespace

void AttemptMachine::Launch(Job* job, const std::vector<Peer>& peers, const std::vector<CollectivePlanProto>& plans) {
  const StartPoint start = StartOf(*job);
  JobEvent event = context_.NewEvent(job->id);
  AttemptPlaced* placed = event.mutable_placed();
  placed->set_attempt(job->attempt + 1);
  placed->set_generation(context_.jobs.generation().value() + 1);
  for (const Peer& peer : peers) {
    Peer* const added = placed->add_peers();
    *added = peer;
    const Worker* const worker = context_.FindWorker(WorkerId(peer.worker_id()));
    if (worker != nullptr) added->set_user(worker->registration.user());
  }
  for (const CollectivePlanProto& plan : plans) *placed->add_plans() = plan;
  placed->set_first_step(start.step);
  placed->set_state_blob(start.state_blob);
  placed->set_checkpoint_uri(start.checkpoint_uri);
  placed->set_checkpoint_digest(start.checkpoint_digest);
  placed->set_session_key(context_.random->Hex(16));
  if (job->spec.session() && context_.AllSpeak(kSessionSecretProtocol, peers)) {
    placed->set_session_secret(context_.random->Hex(32));
  }
  context_.Record(std::move(event));
  Attempt& attempt = context_.AddAttempt(*job);
  for (const Peer& peer : peers) {
    attempt.present.insert(peer.worker_id());
    SendLaunch(context_, *job, peer);
  }
  context_.Changed(job->id);
}

void AttemptMachine::NoteProgress(const WorkerId& worker, const RunningTask& task, Job* job, Attempt* attempt) {
  attempt->present.insert(worker.str());
  attempt->launched.insert(worker.str());
  attempt->progress[worker.str()] = task.step();
  if (task.step() > job->step) {
    job->step = task.step();
    context_.Changed(job->id);
  }
  RenewLease(job, attempt, task.step());
}

void AttemptMachine::RenewLease(Job* job, Attempt* attempt, int64_t step) {
  const bool is_due = step > attempt->lease_until - context_.options.lease_steps / 2;
  if (job->state != RUNNING || !is_due || attempt->lease_until >= job->spec.steps()) return;
  attempt->lease_until = step + context_.options.lease_steps;
  for (const Peer& peer : job->placed.peers()) SendLease(WorkerId(peer.worker_id()), *job);
}

void AttemptMachine::SendLease(const WorkerId& worker, const Job& job) {
  const int64_t lease_until = context_.attempts.at(job.id).lease_until;
  if (job.state != RUNNING || lease_until == 0) return;
  CoordinatorMessage renew;
  SetAttempt(job.current(), renew.mutable_renew());
  renew.mutable_renew()->set_lease_until_step(lease_until);
  context_.Send(worker, std::move(renew));
}

void AttemptMachine::OnReported(const WorkerId& worker, const RunningTask& task) {
  Job* job = context_.FindRunning(task.job_id(), task.attempt(), task.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) {
    return context_.Send(worker, AbortMessage(AttemptOf(task), "this attempt has ended"));
  }
  Attempt& attempt = context_.attempts.at(job->id);
  NoteProgress(worker, task, job, &attempt);
  if (EndIfLinkIsCut(context_, worker, task, job)) return;
  if (!attempt.awaiting_adoption) return;
  if (std::ssize(attempt.present) < job->placed.peers_size()) return;
  attempt.awaiting_adoption = false;
  attempt.placed_ns = context_.now_ns;
  if (job->state == RUNNING) {
    JobEvent event = context_.NewEvent(job->id);
    event.mutable_adopted()->set_attempt(job->attempt);
    event.mutable_adopted()->set_step(job->step);
    context_.Record(std::move(event));
    checkpoints_.OnAdopted(*job);
  }
  context_.Changed(job->id);
  if (!attempt.stop_reason.empty()) Stop(job, std::string(attempt.stop_reason));
}

// Handles the tasks that the worker should run but does not list. If the worker's process is the same and has never
// reported the task, the launch was lost with a connection and is sent again. Otherwise the task is lost, and the
// attempt fails.
void AttemptMachine::OnRegistered(const WorkerId& worker, const RegisterWorker& message) {
  const std::set<JobId> jobs = context_.FindWorker(worker)->jobs;
  for (const JobId& id : jobs) {
    Job* job = context_.jobs.Find(id);
    if (job == nullptr || !job->attempt_running) continue;
    const auto task = std::find_if(message.running().begin(), message.running().end(), [&](const RunningTask& running) {
      return context_.FindRunning(running.job_id(), running.attempt(), running.generation()) == job;
    });
    if (task != message.running().end()) {  // Messages to the worker may have been lost with its old connection.
      SendLease(worker, *job);
      SendStop(worker, *job);
      checkpoints_.RepeatRequest(worker, *job, task->step());
      SendNewCode(worker, *job);
      continue;
    }
    for (const Peer& peer : job->placed.peers()) {
      if (peer.worker_id() != worker.str()) continue;
      const bool same_process = peer.incarnation() == message.incarnation();
      if (same_process && !context_.attempts.at(id).launched.contains(worker.str()) && job->state == STARTING) {
        SendLaunch(context_, *job, peer);
        break;
      }
      const std::string how = same_process ? absl::StrCat(" no longer has a task of the attempt at step ", job->step)
                                           : absl::StrCat(" was lost at step ", job->step,
                                                          ": its process restarted (now pid ", message.pid(), ")");
      FailAttempt(context_, job, {absl::StrCat(Context::WorkerText(*job, worker.str()), how), worker.str(), "", -1});
      break;
    }
  }
}

void AttemptMachine::OnReady(const WorkerId& worker, const TaskReady& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) return;
  Attempt& attempt = context_.attempts.at(job->id);
  if (job->state != RUNNING) {
    if (!message.session_address().empty() && !attempt.ready.contains(worker.str())) {
      SessionPlace& place = attempt.places.emplace_back();
      place.set_worker_id(worker.str());
      place.set_address(message.session_address());
      place.set_authority(message.session_authority());
    }
    return NoteReady(worker, job);
  }
  // The worker did not receive the first start message.
  attempt.launched.insert(worker.str());
  attempt.ready.insert(worker.str());
  if (attempt.lease_until == 0) attempt.lease_until = job->step + context_.options.lease_steps;
  CoordinatorMessage start;
  SetAttempt(job->current(), start.mutable_start());
  start.mutable_start()->set_lease_until_step(attempt.lease_until);
  start.mutable_start()->mutable_places()->Assign(job->places.begin(), job->places.end());
  context_.Send(worker, std::move(start));
  SendNewCode(worker, *job);
}

void AttemptMachine::NoteReady(const WorkerId& worker, Job* job) {
  Attempt& attempt = context_.attempts.at(job->id);
  attempt.launched.insert(worker.str());
  attempt.ready.insert(worker.str());
  if (job->state == RUNNING || std::ssize(attempt.ready) < job->placed.peers_size()) return;
  if (job->spec.session() && attempt.places.empty()) {
    const std::string reason = "no worker serves the session: its workers are of an older version of xlad; update them";
    return FailAttempt(context_, job, {reason, "", "", -1});
  }
  JobEvent event = context_.NewEvent(job->id);
  event.mutable_started()->set_attempt(job->attempt);
  event.mutable_started()->mutable_places()->Assign(attempt.places.begin(), attempt.places.end());
  context_.Record(std::move(event));
  attempt.awaiting_adoption = false;
  attempt.common_launch = nullptr;
  attempt.last_checkpoint_ns = context_.now_ns;
  attempt.lease_until = job->placed.first_step() + context_.options.lease_steps;
  CoordinatorMessage start;
  SetAttempt(job->current(), start.mutable_start());
  start.mutable_start()->set_lease_until_step(attempt.lease_until);
  start.mutable_start()->mutable_places()->Assign(attempt.places.begin(), attempt.places.end());
  context_.SendToAll(*job, start);
  SendNewCode(*job);
  context_.Changed(job->id);
}

void AttemptMachine::SendNewCode(const WorkerId& worker, const Job& job) {
  if (job.state != RUNNING || !job.HasNewCode()) return;
  CoordinatorMessage message;
  SetAttempt(job.current(), message.mutable_replace_code());
  message.mutable_replace_code()->set_executable_digest(job.executable_digest);
  context_.Send(worker, std::move(message));
}

void AttemptMachine::SendNewCode(const Job& job) {
  for (const Peer& peer : job.placed.peers()) SendNewCode(WorkerId(peer.worker_id()), job);
}

void AttemptMachine::OnShardWritten(const WorkerId& worker, const ShardWritten& message) {
  checkpoints_.OnShardWritten(worker, message);
}

// Records the first of these steps on optimized code, if the attempt has run quickly compiled code until then. Steps
// before there is optimized code are ignored, and so are steps of older workers, which do not report what code they
// run.
void AttemptMachine::NoteCode(const WorkerId& worker, const std::vector<StepMetrics>& steps, Job* job) {
  const auto is_optimized = [](const StepMetrics& step) { return !step.quick_code(); };
  const auto first = std::find_if(steps.begin(), steps.end(), is_optimized);
  if (!job->RunsQuickCode() || job->is_quick || first == steps.end()) return;
  if (!context_.FindWorker(worker)->registration.replaces_code()) return;
  JobEvent event = context_.NewEvent(job->id);
  event.mutable_code_replaced()->set_attempt(job->attempt);
  event.mutable_code_replaced()->set_step(first->step());
  context_.Record(std::move(event));
}

void AttemptMachine::OnSteps(const WorkerId& worker, const TaskSteps& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job) || message.metrics().empty()) return;
  LogBatch::Metrics rows{job->id, {message.metrics().begin(), message.metrics().end()}};
  for (StepMetrics& row : rows.rows) row.set_attempt(job->attempt);
  const StepMetrics& last = rows.rows.back();
  job->step = std::max(job->step, last.step() + 1);
  NoteLoss(last, job);
  NoteCode(worker, rows.rows, job);
  context_.attempts.at(job->id).step_ms = last.step_ms();
  CoordinatorMessage acknowledge;
  SetAttempt(job->current(), acknowledge.mutable_acknowledge());
  acknowledge.mutable_acknowledge()->set_through_step(last.step());
  context_.Send(worker, std::move(acknowledge));
  context_.Changed(job->id);
  context_.effects.batch.metrics.push_back(std::move(rows));
  if (!job->spec.stop_when_not_finite()) return;
  for (const StepMetrics& row : context_.effects.batch.metrics.back().rows) {
    const std::string bad = NotFinite(row, job->spec);
    if (bad.empty()) continue;
    return EndJob(context_, job, FAILED,
                  absl::StrCat("step ", row.step(), ": found ", bad, ", expected a finite number; ",
                               Checkpoints::NewestText(*job)));
  }
}

void AttemptMachine::OnTrace(const WorkerId& worker, const TaskTrace& message) {
  const Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr) return;
  for (const Peer& peer : job->placed.peers()) {
    if (peer.worker_id() != worker.str()) continue;
    TraceRecord record;
    record.set_attempt(message.attempt());
    record.set_worker_id(peer.worker_id());
    record.set_host(peer.host());
    record.set_pid(peer.pid());
    *record.mutable_trace() = message;
    record.mutable_trace()->clear_job_id();
    record.mutable_trace()->clear_attempt();
    record.mutable_trace()->clear_generation();
    context_.effects.actions.push_back(KeepTrace{job->id, std::move(record)});
    return;
  }
}

void AttemptMachine::Stop(Job* job, const std::string& reason) {
  Attempt& attempt = context_.attempts.at(job->id);
  if (attempt.awaiting_adoption) {  // The workers can save the state only after they have reconnected.
    attempt.stop_reason = reason;
    return;
  }
  if (job->state != RUNNING) {  // There is no new state to save.
    return StopAttempt(context_, job, {reason, job->placed.first_step(), /*forget=*/false});
  }
  if (job->spec.session()) return FailAttempt(context_, job, {reason, "", "", -1});
  attempt.stop_at = NextCommonStep(*job, attempt);
  attempt.stop_reason = reason;
  attempt.stopped.clear();
  for (const Peer& peer : job->placed.peers()) SendStop(WorkerId(peer.worker_id()), *job);
}

void AttemptMachine::SendStop(const WorkerId& worker, const Job& job) {
  const int64_t stop_at = context_.attempts.at(job.id).stop_at;
  if (stop_at < 0) return;
  CoordinatorMessage stop;
  SetAttempt(job.current(), stop.mutable_stop_at());
  stop.mutable_stop_at()->set_step(stop_at);
  context_.Send(worker, std::move(stop));
}

void AttemptMachine::OnStopAnswer(const WorkerId& worker, const TaskStopAnswer& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) return;
  Attempt& attempt = context_.attempts.at(job->id);
  if (message.step() != attempt.stop_at) return;
  int64_t& progress = attempt.progress[worker.str()];
  progress = std::max(progress, message.current());
  if (message.accepted() || NextCommonStep(*job, attempt) <= attempt.stop_at) return;
  // The worker has already passed the step, so a later step is chosen for all workers.
  Stop(job, std::string(attempt.stop_reason));
}

void AttemptMachine::OnStopped(const WorkerId& worker, const TaskStopped& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) {
    return context_.Send(worker, ForgetMessage(AttemptOf(message)));
  }
  Attempt& attempt = context_.attempts.at(job->id);
  // An earlier coordinator process stopped the attempt. The log may lack the reason.
  if (attempt.stop_at < 0) {
    attempt.stop_at = message.step();
    if (attempt.stop_reason.empty()) attempt.stop_reason = "stopped before the coordinator restarted";
    for (const Peer& peer : job->placed.peers()) SendStop(WorkerId(peer.worker_id()), *job);
  }
  if (message.step() != attempt.stop_at) return;
  attempt.stopped.insert(worker.str());
  Complete(job);
}

void AttemptMachine::OnFinished(const WorkerId& worker, const TaskFinished& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) {
    return context_.Send(worker, ForgetMessage(AttemptOf(message)));
  }
  NoteReady(worker, job);
  const auto attempt = context_.attempts.find(job->id);
  if (attempt == context_.attempts.end()) return;  // NoteReady has ended the attempt.
  attempt->second.finished[worker.str()] = message.report();
  Complete(job);
}

// Ends an attempt that all workers have finished or stopped if its state is saved. Called again at every tick.
void AttemptMachine::Complete(Job* job) {
  if (job->state != RUNNING) return;
  Attempt& attempt = context_.attempts.at(job->id);
  const size_t workers = job->placed.peers_size();
  const bool is_finished = attempt.finished.size() == workers;
  if (!is_finished && attempt.stopped.size() != workers) return;
  const int64_t step = is_finished ? job->spec.steps() : attempt.stop_at;
  if (is_finished && !job->spec.keep_final_state()) return EndJob(context_, job, SUCCEEDED, "");
  if (Checkpoints::NewestStep(*job) == step) {
    if (step == job->spec.steps()) return EndJob(context_, job, SUCCEEDED, "");
    return StopAttempt(context_, job, {attempt.stop_reason, step, /*forget=*/true});
  }
  // Workers report their shards of this step before they report the end. After a reconnection they repeat the shards
  // that are not part of a committed checkpoint.
  if (attempt.shards.contains(step)) return;
  FailAttempt(context_, job,
              {absl::StrCat("found no shards of the state before step ", step,
                            ", expected one from each worker before it ended; the next attempt continues from the "
                            "newest checkpoint"),
               "", "", -1});
}

void AttemptMachine::OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored) {
  checkpoints_.OnIndexStored(request, stored);
  if (context_.attempts.contains(request.attempt.job)) Complete(context_.jobs.Find(request.attempt.job));
}

void AttemptMachine::OnFailed(const WorkerId& worker, const TaskFailed& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) {
    return context_.Send(worker, ForgetMessage(AttemptOf(message)));
  }
  Attempt& attempt = context_.attempts.at(job->id);
  const std::string error = Shortened(message.error());
  job->step = std::max(job->step, message.step());
  if (attempt.failure.empty()) {
    attempt.failure =
        absl::StrCat(Context::WorkerText(*job, worker.str()), " failed at step ", message.step(), ": ", error);
    attempt.failed_ns = context_.now_ns;
  }
  const bool blames_a_peer = !message.suspect_worker().empty();
  const bool is_not_finite =
      job->spec.stop_when_not_finite() && message.error_code() == static_cast<int32_t>(absl::StatusCode::kOutOfRange);
  if (is_not_finite && !blames_a_peer) {
    return EndJob(context_, job, FAILED, absl::StrCat(error, "; ", Checkpoints::NewestText(*job)));
  }
  if (!blames_a_peer && IsProgramError(message.error_code()) && attempt.program_error.empty()) {
    attempt.program_error = error;
    attempt.failed_step = message.step();
  }
  NoteDamage(*job, worker, message, &attempt);
  if (attempt.suspect.empty()) attempt.suspect = message.suspect_worker();
  if (blames_a_peer && HasPeer(*job, message.suspect_worker())) Suspect(context_, message.suspect_worker(), worker);
  CheckFailure(job);
}

void AttemptMachine::OnExited(const WorkerId& worker, const AttemptExited& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) {
    RemoveFilesIfEnded(context_, JobId(message.job_id()));
    return context_.Send(worker, ForgetMessage(AttemptOf(message)));
  }
  const std::string what = !message.what().empty() ? Shortened(message.what())
                           : message.signal() != 0 ? absl::StrCat("signal ", message.signal())
                                                   : absl::StrCat("exit code ", message.exit_code());
  // SIGKILL and SIGTERM are sent from outside the program, unless the process ran out of memory.
  const bool is_program_error = message.out_of_memory() || (message.signal() != 9 && message.signal() != 15);
  job->step = std::max(job->step, message.step());
  FailAttempt(context_, job,
              {absl::StrCat("the attempt's process (pid ", message.pid(), ") on ",
                            Context::WorkerText(*job, worker.str()), " ended at step ", message.step(), ": ", what),
               "", is_program_error ? absl::StrCat(message.signal(), "/", message.exit_code()) : "", message.step()});
}

// Ends an attempt with a reported failure as soon as the cause is known, or after the grace period.
void AttemptMachine::CheckFailure(Job* job) {
  const Attempt& attempt = context_.attempts.at(job->id);
  if (attempt.failure.empty()) return;
  const Worker* suspect = context_.FindWorker(WorkerId(attempt.suspect));
  if (suspect != nullptr && suspect->connection == ConnectionId()) {
    const std::string reason = absl::StrCat(Context::WorkerText(*job, attempt.suspect), " was lost at step ", job->step,
                                            ": its connections closed");
    return FailAttempt(context_, job, {reason, attempt.suspect, "", -1});
  }
  const bool waited = context_.now_ns - attempt.failed_ns >= context_.options.failure_grace_ms * kNsPerMs;
  if (!attempt.suspect.empty() && !waited) return;
  if (suspect != nullptr && suspect->state == WorkerState::kSuspect && HasPeer(*job, attempt.suspect)) {
    const std::string reason = absl::StrCat(Context::WorkerText(*job, attempt.suspect), " was lost at step ", job->step,
                                            ": its peers have lost their connections to it, and it is silent; ",
                                            attempt.failure);
    return FailAttempt(context_, job, {reason, attempt.suspect, "", -1});
  }
  const int64_t step = attempt.program_error.empty() ? -1 : attempt.failed_step;
  FailAttempt(context_, job, {attempt.failure, "", attempt.program_error, step, attempt.findings});
}

void AttemptMachine::OnWorkerLost(const WorkerId& worker, const std::string& why) {
  const std::set<JobId> jobs = context_.FindWorker(worker)->jobs;
  for (const JobId& id : jobs) {
    Job* job = context_.jobs.Find(id);
    if (job == nullptr || !job->attempt_running) continue;
    if (Attempt& attempt = context_.attempts.at(id); attempt.awaiting_adoption) {
      // The worker may still reconnect within adopt_window_ms. It then reports again that it is ready.
      attempt.present.erase(worker.str());
      attempt.ready.erase(worker.str());
      continue;
    }
    const std::string reason =
        absl::StrCat(Context::WorkerText(*job, worker.str()), " was lost at step ", job->step, ": ", why);
    FailAttempt(context_, job, {reason, worker.str(), "", -1});
  }
}

void AttemptMachine::OnWorkerGone(const WorkerId& worker) {
  const std::set<JobId> jobs = context_.FindWorker(worker)->jobs;
  for (const JobId& id : jobs) {
    if (context_.attempts.contains(id)) CheckFailure(context_.jobs.Find(id));
  }
}

void AttemptMachine::VacateWorker(const WorkerId& worker, const std::string& why) {
  const std::set<JobId> jobs = context_.FindWorker(worker)->jobs;
  for (const JobId& id : jobs) {
    const auto attempt = context_.attempts.find(id);
    if (attempt == context_.attempts.end() || attempt->second.stop_at >= 0) continue;
    Job* job = context_.jobs.Find(id);
    Stop(job, absl::StrCat("stopped because ", Context::WorkerText(*job, worker.str()), " ", why));
  }
}

void AttemptMachine::CheckStart(Job* job) {
  const Attempt& attempt = context_.attempts.at(job->id);
  const int64_t age_ms = (context_.now_ns - attempt.placed_ns) / kNsPerMs;
  if (attempt.awaiting_adoption && age_ms >= context_.options.adopt_window_ms) {
    for (const Peer& peer : job->placed.peers()) {
      if (attempt.present.contains(peer.worker_id())) continue;
      const std::string reason = absl::StrCat(Context::WorkerText(*job, peer.worker_id()), " was lost at step ",
                                              job->step, ": it did not reconnect after the coordinator's restart");
      return FailAttempt(context_, job, {reason, peer.worker_id(), "", -1});
    }
  }
  if (job->state != STARTING || attempt.awaiting_adoption) return;
  if (const Worker* missing = MissingWorker(context_, *job, attempt); missing != nullptr) {
    const std::string id = missing->id.str();
    const std::string reason = absl::StrCat(Context::WorkerText(*job, id), " was lost before attempt ", job->attempt,
                                            " started: its connection has closed");
    return StopAttempt(context_, job, {reason, job->placed.first_step(), /*forget=*/false, id});
  }
  if (age_ms >= context_.options.start_timeout_ms) {
    const std::string reason =
        absl::StrCat("not all workers were ready after ", context_.options.start_timeout_ms, " ms");
    FailAttempt(context_, job, {reason, "", "", -1});
  }
}

void AttemptMachine::OnTick() {
  std::vector<JobId> running;
  for (const auto& [id, attempt] : context_.attempts) running.push_back(id);
  for (const JobId& id : running) {
    Job* job = context_.jobs.Find(id);
    CheckStart(job);
    if (context_.attempts.contains(id)) Complete(job);
    if (context_.attempts.contains(id)) CheckFailure(job);
    if (job->attempt_running && job->resized && context_.attempts.at(id).stop_at < 0) {
      const bool keeps_mesh = IsCanonical(job->spec);
      Stop(job, absl::StrCat("stopped to run on ", keeps_mesh ? DeviceCountText(job->devices)
                                                              : absl::StrCat("mesh ", MeshText(job->mesh))));
    }
    if (context_.attempts.contains(id)) KeepTogether(context_, *job);
    if (context_.attempts.contains(id)) checkpoints_.OnTick(job);
  }
}

void AttemptMachine::AfterRecovery() {
  for (Job* job : context_.jobs.Open()) {
    if (job->damaged_attempts > 0) job->failed_ns = context_.now_ns;  // The pause begins again.
    if (!job->attempt_running) continue;
    context_.AddAttempt(*job).awaiting_adoption = true;
    for (const Peer& peer : job->placed.peers()) context_.recovered[WorkerId(peer.worker_id())].push_back(job->id);
  }
}

}  // namespace xlad::service
