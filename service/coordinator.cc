#include "service/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "base/containers.h"
#include "base/log.h"
#include "proto/protocol.h"
#include "service/jobs/why.h"

namespace xlad::service {

CoordinatorCore::CoordinatorCore(const CoordinatorOptions& options, Random* random)
    : context_(options, random),
      attempts_(&context_),
      sessions_(&context_),
      jobs_(&context_, &attempts_),
      workers_(&context_, &attempts_),
      retention_(&context_) {}

namespace {

// Adds the checkpoints in the blob store that this event drops.
void AddDropped(const JobEvent& event, const Jobs& jobs, std::set<std::string>* uris) {
  const Job* const job = jobs.Find(JobId(event.job_id()));
  if (job == nullptr || !event.has_dropped() || !event.dropped().damage().empty()) return;
  for (const Checkpoint& checkpoint : job->checkpoints) {
    const bool is_blob = absl::StartsWith(checkpoint.uri, "xlad:");
    if (is_blob && Contains(event.dropped().steps(), checkpoint.step)) uris->insert(checkpoint.uri);
  }
}

}  // namespace

absl::Status CoordinatorCore::Recover(JobLog* log, const std::string& reason, const std::map<JobId, int64_t>& ages) {
  std::set<std::string> dropped;
  XLAD_RETURN_IF_ERROR(log->ReadEvents([&](const JobEvent& event) {
    AddDropped(event, context_.jobs, &dropped);
    context_.jobs.Apply(event);
    return absl::OkStatus();
  }));
  if (!dropped.empty()) context_.effects.actions.push_back(DropCheckpointsAgain{std::move(dropped)});
  for (const auto& [number, job] : context_.jobs.by_number()) {
    // A running attempt repeats the steps after its checkpoint, so metrics of earlier attempts do not count.
    const auto last = log->LastMetrics(job->id, job->attempt_running ? job->attempt : 0);
    if (absl::IsDataLoss(last.status())) {  // The job does not need them.
      LogError("the last metrics of a job are damaged",
               {{"job", job->id.str()}, {"error", std::string(last.status().message())}});
      continue;
    }
    XLAD_RETURN_IF_ERROR(last.status());
    if (!last->has_value()) continue;
    job->step = std::max(job->attempt_running ? job->placed.first_step() : job->first_step, (*last)->step() + 1);
    NoteLoss(**last, job);
  }
  attempts_.AfterRecovery();
  jobs_.AfterRecovery();
  sessions_.AfterRecovery();
  retention_.AfterRecovery(ages);
  JobEvent event = context_.NewEvent(JobId());
  const int64_t term = context_.jobs.term().value() + 1;
  event.set_term(term);
  event.mutable_term_started()->set_term(term);
  event.mutable_term_started()->set_incarnation(context_.incarnation);
  event.mutable_term_started()->set_reason(reason);
  context_.Record(std::move(event));
  context_.reschedule = true;
  return absl::OkStatus();
}

void CoordinatorCore::At(const Clock& clock) {
  const int64_t real_ns = clock.NowNs();
  const int64_t passed_ns = last_real_ns_ < 0 ? 0 : real_ns - last_real_ns_;
  last_real_ns_ = real_ns;
  if (passed_ns < context_.options.own_lag_ms * kNsPerMs) context_.now_ns += passed_ns;
  context_.wall_ns = clock.WallNs();
}

void CoordinatorCore::ForgetEnded() {
  for (const JobId& id : std::exchange(context_.ended, {})) {
    jobs_.OnEnded(id);
    sessions_.OnEnded(id);
    retention_.OnEnded(id);
  }
}

Effects CoordinatorCore::Take() {
  for (int round = 0; round < 4; ++round) {
    ForgetEnded();
    const std::vector<JobId> submitted = std::exchange(context_.submitted, {});
    if (!std::exchange(context_.reschedule, false)) {
      jobs_.ScheduleNew(submitted);
      if (!context_.reschedule && context_.ended.empty()) break;
      continue;
    }
    context_.runnable.insert(context_.runnable.end(), submitted.begin(), submitted.end());
    workers_.ReleaseLeaving();
    jobs_.Schedule();
  }
  return std::exchange(context_.effects, {});
}

absl::StatusOr<SubmitJobResponse> CoordinatorCore::Submit(const SubmitJobRequest& request,
                                                          const ResolvedResume& resume) {
  auto response = jobs_.Submit(request, resume);
  if (response.ok() && request.spec().session() && !response->existed()) sessions_.OnOpened(JobId(response->job_id()));
  ForgetEnded();
  return response;
}

absl::StatusOr<SubmitJobResponse> CoordinatorCore::OpenSession(const OpenSessionRequest& request) {
  SubmitJobRequest submit;
  submit.set_client_key(request.client_key());
  submit.mutable_spec()->set_name(request.name());
  submit.mutable_spec()->set_session(true);
  *submit.mutable_spec()->mutable_mesh() = request.mesh();
  return Submit(submit);
}

absl::Status CoordinatorCore::Cancel(const JobId& id) {
  const absl::Status status = jobs_.Cancel(id);
  ForgetEnded();
  return status;
}

absl::Status CoordinatorCore::Resize(const ResizeJobRequest& request) {
  const absl::Status status = jobs_.Resize(request);
  ForgetEnded();
  return status;
}

absl::Status CoordinatorCore::Drain(const WorkerId& id) {
  const absl::Status status = workers_.Drain(id);
  ForgetEnded();
  return status;
}

absl::Status CoordinatorCore::Undrain(const WorkerId& id) {
  const absl::Status status = workers_.Undrain(id);
  ForgetEnded();
  return status;
}

absl::Status CoordinatorCore::CloseSession(const JobId& id) {
  const absl::Status status = sessions_.Close(id);
  ForgetEnded();
  return status;
}

void CoordinatorCore::OnWorkerMessage(ConnectionId connection, const WorkerMessage& message) {
  workers_.OnMessage(connection, message);
  ForgetEnded();
}

void CoordinatorCore::OnWorkerGone(ConnectionId connection, const std::string& why) {
  workers_.OnGone(connection, why);
  ForgetEnded();
}

void CoordinatorCore::OnBuilt(const JobId& id, const Mesh& mesh, const absl::StatusOr<BuiltProgram>& built) {
  jobs_.OnBuilt(id, mesh, built);
  ForgetEnded();
}

void CoordinatorCore::OnOptimized(const StartOptimizing& request, const absl::StatusOr<BuiltProgram>& built) {
  jobs_.OnOptimized(request, built);
  ForgetEnded();
}

void CoordinatorCore::OnPlanLoaded(const std::string& digest, const absl::StatusOr<PlannedProgram>& plan) {
  jobs_.OnPlanLoaded(digest, plan);
  ForgetEnded();
}

void CoordinatorCore::OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored) {
  attempts_.OnIndexStored(request, stored);
  ForgetEnded();
}

void CoordinatorCore::OnTick() {
  workers_.OnTick();
  attempts_.OnTick();
  sessions_.OnTick();
  jobs_.OnTick();
  retention_.OnTick();
  ForgetEnded();
}

absl::StatusOr<WhyJobResponse> CoordinatorCore::Why(const JobId& id) const {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", id.str(), "; xlad ps lists the jobs"));
  return WhyJob(context_, *job, sessions_.WhyItMayEnd(id));
}

CoordinatorStatus CoordinatorCore::Status() const {
  CoordinatorStatus status;
  status.set_protocol(kProtocol);
  status.set_term(context_.jobs.term().value());
  status.set_serving(true);
  status.set_free_bytes(context_.free_bytes == INT64_MAX ? -1 : context_.free_bytes);
  status.set_accepts_jobs(context_.free_bytes >= context_.options.min_free_bytes);
  for (const auto& [state, count] : context_.jobs.counts()) {
    if (count > 0) (*status.mutable_jobs())[JobState_Name(state)] = count;
  }
  return status;
}

}  // namespace xlad::service
