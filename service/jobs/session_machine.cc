#include "service/jobs/session_machine.h"

#include "proto/device_name.h"
#include "service/state/messages.h"

namespace xlad::service {

void SessionMachine::OnOpened(const JobId& id) {
  sessions_[id].released_ns = context_.now_ns;
  context_.reschedule = true;
}

absl::Status SessionMachine::Hold(const JobId& id) {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr || !job->spec.session()) return absl::NotFoundError(absl::StrCat("no session ", id.str()));
  if (const auto held = sessions_.find(id); held != sessions_.end()) ++held->second.holds;
  return absl::OkStatus();
}

void SessionMachine::Release(const JobId& id) {
  const auto held = sessions_.find(id);
  if (held == sessions_.end()) return;
  --held->second.holds;
  held->second.released_ns = context_.now_ns;
}

absl::Status SessionMachine::Check(const JobId& id) const {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr || !job->spec.session()) return absl::NotFoundError(absl::StrCat("no session ", id.str()));
  if (HasEnded(*job)) return absl::AbortedError(absl::StrCat("session ", id.str(), " has ended: ", job->reason));
  if (job->state != RUNNING || !sessions_.contains(id)) {
    return absl::UnavailableError(absl::StrCat("session ", id.str(), " is not running yet: ", job->reason));
  }
  return absl::OkStatus();
}

absl::Status SessionMachine::With(const JobId& id, const std::function<absl::Status(Session*)>& work) {
  XLAD_RETURN_IF_ERROR(Check(id));
  Session* const session = &sessions_.at(id).state;
  const absl::Status status = work(session);
  Perform(*context_.jobs.Find(id), session);
  return status;
}

void SessionMachine::Perform(const Job& job, Session* session) {
  SessionEffects effects = session->TakeEffects();
  for (SessionEffects::StoredArray& array : effects.stored) {
    context_.effects.actions.push_back(
        StoreArray{job.id, array.array, std::move(array.shape), std::move(array.bytes), array.expected});
  }
  for (SessionCommand& command : effects.commands) {
    CoordinatorMessage message;
    *message.mutable_session() = std::move(command);
    SetAttempt(job.current(), message.mutable_session());
    context_.SendToAll(job, message);
  }
  if (!effects.dropped.empty()) context_.effects.actions.push_back(DropArrays{job.id, std::move(effects.dropped)});
}

absl::StatusOr<Target> SessionMachine::TargetOf(const JobId& id) const {
  XLAD_RETURN_IF_ERROR(Check(id));
  const Peer& first = context_.jobs.Find(id)->placed.peers(0);
  const Worker* worker = context_.FindWorker(WorkerId(first.worker_id()));
  if (worker == nullptr) return absl::UnavailableError("the first worker of the session is not connected");
  for (const DeviceOffer& offer : OffersOf(worker->registration)) {
    if (first.device_name().empty() || DeviceName(offer.target()) == first.device_name()) return offer.target();
  }
  return absl::UnavailableError(
      absl::StrCat("the first worker of the session no longer has devices of kind ", first.device_name()));
}

absl::Status SessionMachine::Close(const JobId& id) {
  Job* job = context_.jobs.Find(id);
  if (job == nullptr || !job->spec.session()) return absl::NotFoundError(absl::StrCat("no session ", id.str()));
  if (!HasEnded(*job)) EndJob(context_, job, SUCCEEDED, "closed by its client");
  return absl::OkStatus();
}

void SessionMachine::OnAnswer(const WorkerId& worker, const SessionAnswer& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !sessions_.contains(job->id) || !HasPeer(*job, worker.str())) return;
  Session& session = sessions_.at(job->id).state;
  session.Answer(worker.str(), message.sequence(), job->placed.peers_size());
  job->step = session.done();
  Perform(*job, &session);
  context_.Changed(job->id);
}

void SessionMachine::OnRegistered(const WorkerId& worker, const RunningTask& task) {
  const Job* job = context_.FindRunning(task.job_id(), task.attempt(), task.generation());
  if (job == nullptr) return;
  const auto found = sessions_.find(job->id);
  if (found == sessions_.end()) return;
  for (SessionCommand& command : found->second.state.UnansweredBy(worker.str())) {
    CoordinatorMessage message;
    *message.mutable_session() = std::move(command);
    SetAttempt(job->current(), message.mutable_session());
    context_.Send(worker, std::move(message));
  }
}

void SessionMachine::OnTick() {
  for (Job* job : context_.jobs.Open()) {
    if (!job->spec.session()) continue;
    const auto found = sessions_.find(job->id);
    if (found == sessions_.end()) {
      EndJob(context_, job, FAILED, "the coordinator restarted");
    } else if (found->second.holds == 0 &&
               context_.now_ns - found->second.released_ns >= context_.options.session_grace_ms * kNsPerMs) {
      EndJob(context_, job, CANCELLED,
             absl::StrCat("no client has held it for ", context_.options.session_grace_ms, " ms"));
    }
  }
}

void SessionMachine::OnEnded(const JobId& id) {
  if (sessions_.erase(id) == 0) return;
  context_.effects.actions.push_back(EndSession{id, context_.jobs.Find(id)->reason});
}

}  // namespace xlad::service
