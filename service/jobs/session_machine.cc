#include "service/jobs/session_machine.h"

#include "proto/device_name.h"

namespace xlad::service {

void SessionMachine::OnOpened(const JobId& id) {
  holds_[id].released_ns = context_.now_ns;
  context_.reschedule = true;
}

void SessionMachine::AfterRecovery() {
  for (const Job* job : context_.jobs.Open()) {
    if (job->spec.session()) OnOpened(job->id);
  }
}

absl::Status SessionMachine::Hold(const JobId& id) {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr || !job->spec.session()) return absl::NotFoundError(absl::StrCat("no session ", id.str()));
  if (const auto held = holds_.find(id); held != holds_.end()) ++held->second.count;
  return absl::OkStatus();
}

void SessionMachine::Release(const JobId& id) {
  const auto held = holds_.find(id);
  if (held == holds_.end()) return;  // The session has ended.
  --held->second.count;
  held->second.released_ns = context_.now_ns;
}

absl::Status SessionMachine::Check(const JobId& id) const {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr || !job->spec.session()) return absl::NotFoundError(absl::StrCat("no session ", id.str()));
  if (HasEnded(*job)) return absl::AbortedError(absl::StrCat("session ", id.str(), " has ended: ", job->reason));
  if (job->state != RUNNING) {
    return absl::UnavailableError(absl::StrCat("session ", id.str(), " is not running yet: ", job->reason));
  }
  return absl::OkStatus();
}

absl::StatusOr<LocateSessionResponse> SessionMachine::Locate(const JobId& id) const {
  XLAD_RETURN_IF_ERROR(Check(id));
  const Job& job = *context_.jobs.Find(id);
  LocateSessionResponse response;
  response.set_address(job.places.empty() ? "" : job.places[0].address());
  response.set_authority(job.places.empty() ? "" : job.places[0].authority());
  response.set_key(job.placed.session_key());
  response.set_attempt(job.attempt);
  return response;
}

absl::StatusOr<std::string> SessionMachine::SealOf(const JobId& id, const std::string& executable_digest,
                                                   const security::CollectivePlans& plans) const {
  XLAD_RETURN_IF_ERROR(Check(id));
  const std::string& secret = context_.jobs.Find(id)->placed.session_secret();
  return secret.empty() ? std::string() : security::ProgramSeal(secret, executable_digest, plans);
}

Target SessionMachine::WithCommonOps(Target target, const Job& session) const {
  for (const Peer& peer : session.placed.peers()) {
    const Worker* const worker = context_.FindWorker(WorkerId(peer.worker_id()));
    if (worker == nullptr) continue;
    for (const DeviceOffer& offer : OffersOf(worker->registration)) {
      if (LacksOps(offer.target(), target)) target.set_has_dots_of_f64_and_s8(false);
    }
  }
  return target;
}

absl::StatusOr<Target> SessionMachine::TargetOf(const JobId& id) const {
  XLAD_RETURN_IF_ERROR(Check(id));
  const Peer& first = context_.jobs.Find(id)->placed.peers(0);
  const Worker* worker = context_.FindWorker(WorkerId(first.worker_id()));
  if (worker == nullptr) return absl::UnavailableError("the first worker of the session is not connected");
  for (const DeviceOffer& offer : OffersOf(worker->registration)) {
    if (first.device_name().empty() || DeviceName(offer.target()) == first.device_name()) {
      return WithCommonOps(offer.target(), *context_.jobs.Find(id));
    }
  }
  return absl::UnavailableError(
      absl::StrCat("the first worker of the session no longer has devices of kind ", first.device_name()));
}

absl::StatusOr<bool> SessionMachine::SendsPartialsInF32(const JobId& id) const {
  XLAD_RETURN_IF_ERROR(Check(id));
  const auto& peers = context_.jobs.Find(id)->placed.peers();
  return context_.AllSendPartialsInF32({peers.begin(), peers.end()});
}

absl::Status SessionMachine::Close(const JobId& id) {
  Job* job = context_.jobs.Find(id);
  if (job == nullptr || !job->spec.session()) return absl::NotFoundError(absl::StrCat("no session ", id.str()));
  if (!HasEnded(*job)) {
    EndJob(context_, job, SUCCEEDED, context_.actor.empty() ? "closed by its client" : "closed by " + context_.actor);
  }
  return absl::OkStatus();
}

void SessionMachine::OnEnded(const JobId& id) {
  if (holds_.erase(id) > 0) context_.effects.actions.push_back(StopBuild{id});
}

void SessionMachine::OnTick() {
  for (const auto& [id, holds] : holds_) {  // EndJob does not change holds_; OnEnded removes the entry after the loop.
    if (holds.count > 0) continue;
    if (context_.now_ns - holds.released_ns < context_.options.session_grace_ms * kNsPerMs) continue;
    Job* job = context_.jobs.Find(id);
    if (job == nullptr || HasEnded(*job)) continue;
    EndJob(context_, job, CANCELLED,
           absl::StrCat("its client has been disconnected for ", context_.options.session_grace_ms / 1e3, " s"));
  }
}

std::string SessionMachine::WhyItMayEnd(const JobId& id) const {
  const auto held = holds_.find(id);
  if (held == holds_.end() || held->second.count > 0) return "";
  return absl::StrCat("its client has been disconnected for ",
                      (context_.now_ns - held->second.released_ns) / kNsPerSecond, " s; the session ends after ",
                      context_.options.session_grace_ms / 1e3, " s unless the client reconnects");
}

}  // namespace xlad::service
