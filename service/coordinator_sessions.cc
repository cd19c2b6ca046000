// Sessions: opening, holding, commands and their answers. The state of a session's arrays is in session.cc.
#include "base/log.h"
#include "proto/device_name.h"
#include "service/coordinator.h"

namespace xlad::service {

absl::StatusOr<std::string> CoordinatorCore::OpenSession(const OpenSessionRequest& request, Actions* actions) {
  SubmitJobRequest submit;
  submit.set_client_key(request.client_key());
  submit.mutable_spec()->set_name(request.name());
  submit.mutable_spec()->set_session(true);
  *submit.mutable_spec()->mutable_mesh() = request.mesh();
  for (const MeshAxis& axis : request.mesh()) {
    if (axis.size() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("found mesh axis \"", axis.name(), "\" of size ", axis.size(), ", expected 1 or more"));
    }
  }
  XLAD_ASSIGN_OR_RETURN(const SubmitJobResponse response, Submit(submit, actions));
  return response.job_id();
}

absl::Status CoordinatorCore::HoldSession(const std::string& session_id) {
  const auto found = jobs_.find(session_id);
  if (found == jobs_.end() || !found->second.spec.session()) {
    return absl::NotFoundError(absl::StrCat("no session ", session_id));
  }
  if (const auto held = sessions_.find(session_id); held != sessions_.end()) ++held->second.holds;
  return absl::OkStatus();
}

void CoordinatorCore::ReleaseSession(const std::string& session_id) {
  const auto held = sessions_.find(session_id);
  if (held == sessions_.end()) return;
  --held->second.holds;
  held->second.released_ns = environment_.clock->NowNs();
}

absl::Status CoordinatorCore::CheckSession(const std::string& session_id) const {
  const auto found = jobs_.find(session_id);
  if (found == jobs_.end() || !found->second.spec.session()) {
    return absl::NotFoundError(absl::StrCat("no session ", session_id));
  }
  const Job& job = found->second;
  if (HasEnded(job)) return absl::AbortedError(absl::StrCat("session ", session_id, " has ended: ", job.reason));
  if (job.state != RUNNING || !sessions_.contains(session_id)) {
    return absl::UnavailableError(absl::StrCat("session ", session_id, " is not running yet: ", job.reason));
  }
  return absl::OkStatus();
}

absl::Status CoordinatorCore::WithSession(const std::string& session_id,
                                          const std::function<absl::Status(Session*)>& work, Actions* actions) {
  XLAD_RETURN_IF_ERROR(CheckSession(session_id));
  Session* const session = &sessions_.at(session_id).state;
  const absl::Status status = work(session);
  PerformSession(jobs_.at(session_id), session, actions);
  return status;
}

void CoordinatorCore::PerformSession(const Job& job, Session* session, Actions* actions) {
  SessionEffects effects = session->TakeEffects();
  for (SessionEffects::StoredArray& array : effects.stored) actions->push_back(StoreArray{job.id, std::move(array)});
  for (SessionCommand& command : effects.commands) {
    CoordinatorMessage message;
    *message.mutable_session() = std::move(command);
    message.mutable_session()->set_job_id(job.id);
    message.mutable_session()->set_attempt(job.attempt);
    SendToAll(job, message, actions);
  }
  if (!effects.dropped.empty()) actions->push_back(DropArrays{job.id, std::move(effects.dropped)});
}

absl::StatusOr<int64_t> CoordinatorCore::LoadProgram(const std::string& session_id, const std::string& digest,
                                                     Actions* actions) {
  XLAD_RETURN_IF_ERROR(CheckSession(session_id));
  XLAD_ASSIGN_OR_RETURN(const Executable executable, environment_.load_executable(digest));
  const auto& placed = jobs_.at(session_id).placed.peers();
  XLAD_ASSIGN_OR_RETURN(const std::vector<CollectivePlanProto> plans,
                        PlanCollectives(executable, {placed.begin(), placed.end()}));
  int64_t program = 0;
  XLAD_RETURN_IF_ERROR(WithSession(
      session_id,
      [&](Session* session) {
        program = session->LoadProgram(executable, digest, plans);
        return absl::OkStatus();
      },
      actions));
  return program;
}

absl::StatusOr<Target> CoordinatorCore::SessionTarget(const std::string& session_id) const {
  XLAD_RETURN_IF_ERROR(CheckSession(session_id));
  const auto worker = workers_.find(jobs_.at(session_id).placed.peers(0).worker_id());
  if (worker == workers_.end()) return absl::UnavailableError("the first worker of the session is not connected");
  const std::string& name = jobs_.at(session_id).placed.peers(0).device_name();
  for (const DeviceOffer& offer : OffersOf(worker->second.registration)) {
    if (name.empty() || DeviceName(offer.target()) == name) return offer.target();
  }
  return absl::UnavailableError(absl::StrCat("the first worker of the session no longer has devices of kind ", name));
}

absl::Status CoordinatorCore::CloseSession(const std::string& session_id, Actions* actions) {
  const absl::Status status = HoldSession(session_id);
  if (!status.ok()) return status;
  ReleaseSession(session_id);
  Job& job = jobs_.at(session_id);
  if (HasEnded(job)) return absl::OkStatus();
  EndJob(&job, SUCCEEDED, "closed by its client", "", actions);
  if (!HasEnded(job)) return absl::UnavailableError("the job log cannot be written");
  return absl::OkStatus();
}

void CoordinatorCore::OnSessionAnswer(const std::string& worker_id, const SessionAnswer& message, Actions* actions) {
  Job* job = Find(message.job_id(), message.attempt());
  if (job == nullptr || !sessions_.contains(message.job_id())) return;
  Session& session = sessions_.at(job->id).state;
  session.Answer(worker_id, message.sequence(), job->placed.peers_size());
  job->step = session.done();
  PerformSession(*job, &session, actions);
  actions->push_back(JobChanged{job->id});
}

// Sends again the commands that the worker has not answered: they may have been lost with its last connection.
void CoordinatorCore::RepeatCommands(const Job& job, const std::string& worker_id, Actions* actions) {
  const auto found = sessions_.find(job.id);
  if (found == sessions_.end()) return;
  for (SessionCommand& command : found->second.state.UnansweredBy(worker_id)) {
    CoordinatorMessage message;
    *message.mutable_session() = std::move(command);
    message.mutable_session()->set_job_id(job.id);
    message.mutable_session()->set_attempt(job.attempt);
    Send(worker_id, std::move(message), actions);
  }
}

// Ends sessions that no client holds, and sessions of an earlier coordinator process, whose arrays are unknown.
void CoordinatorCore::ExpireSessions(Actions* actions) {
  const int64_t now_ns = environment_.clock->NowNs();
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (!job.spec.session() || HasEnded(job)) continue;
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
      EndJob(&job, FAILED, "the coordinator restarted", "", actions);
    } else if (found->second.holds == 0 &&
               now_ns - found->second.released_ns >= options_.session_grace_ms * kNsPerMs) {
      EndJob(&job, CANCELLED, absl::StrCat("no client has held it for ", options_.session_grace_ms, " ms"), "",
             actions);
    }
  }
}

}  // namespace xlad::service
