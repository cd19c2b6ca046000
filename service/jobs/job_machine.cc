#include "service/jobs/job_machine.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/hash.h"
#include "base/log.h"
#include "proto/device_name.h"
#include "proto/mesh.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxPage = 1000;

absl::Status CheckMesh(const Mesh& mesh) {
  if (DeviceCount(mesh) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found mesh ", MeshText(mesh),
                                                 ", expected axis sizes of 1 or more and at most ", kMaxDevices,
                                                 " devices"));
}

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("no job ", id, "; xlad ps lists the jobs"));
}

// Unavailable if the job that is resumed has dropped this checkpoint since NewestCheckpoint returned it: its files may
// be gone, and another call finds the newest one. NotFound if the job has been removed since then. `resumed` is
// JobSpec.resume. Blobs are held until the new job is recorded.
absl::Status CheckIsKept(const Jobs& jobs, const std::string& resumed, const ResolvedResume& resume) {
  const bool is_job = !resumed.empty() && !absl::StrContains(resumed, ':');
  if (!is_job || !absl::StartsWith(resume.uri, "file:")) return absl::OkStatus();
  const Job* const job = jobs.Find(JobId(resumed));
  if (job == nullptr) return NoSuchJob(resumed);
  if (job->HasCheckpoint(resume.uri)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("job ", resumed, " has dropped its checkpoint of step ", resume.step,
                                             " during the submission; submit again"));
}

}  // namespace

absl::StatusOr<SubmitJobResponse> JobMachine::Submit(const SubmitJobRequest& request, const ResolvedResume& resume) {
  if (request.client_key().empty()) return absl::InvalidArgumentError("found no client_key, expected a unique one");
  XLAD_RETURN_IF_ERROR(CheckMesh(request.spec().mesh()));
  const std::string digest = Sha256Hex(request.spec().SerializeAsString());
  SubmitJobResponse response;
  if (const Job* known = context_.jobs.FindByKey(request.client_key()); known != nullptr) {
    if (known->spec_digest != digest) {
      return absl::AlreadyExistsError(absl::StrCat("client_key ", request.client_key(), " belongs to job ",
                                                   known->id.str(), ", which has another spec"));
    }
    response.set_job_id(known->id.str());
    response.set_existed(true);
    return response;
  }
  XLAD_RETURN_IF_ERROR(CheckIsKept(context_.jobs, request.spec().resume(), resume));
  const int64_t first_step = resume.uri.empty() ? request.spec().start_step() : resume.step;
  if (first_step > request.spec().steps()) {  // The last state of such a job could never be saved.
    return absl::InvalidArgumentError(
        absl::StrCat("steps: found ", request.spec().steps(), " for a job that starts from step ", first_step,
                     ", expected ", first_step, " or more: the steps before the start count, too"));
  }
  if (context_.free_bytes < context_.options.min_free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the coordinator's disk is nearly full: found ", context_.free_bytes >> 20, " MiB free, expected ",
                     context_.options.min_free_bytes >> 20,
                     " or more; running jobs continue, and new ones are accepted when there is "
                     "space again"));
  }
  JobId id;
  do {
    id = JobId(absl::StrCat("job-", context_.random->Hex(4)));
  } while (context_.jobs.Find(id) != nullptr || context_.jobs.removed().contains(id));
  JobEvent event = context_.NewEvent(id);
  JobSubmitted* submitted = event.mutable_submitted();
  submitted->set_client_key(request.client_key());
  submitted->set_spec_digest(digest);
  *submitted->mutable_spec() = request.spec();
  submitted->set_checkpoint_uri(resume.uri);
  submitted->set_checkpoint_digest(resume.digest);
  submitted->set_first_step(first_step);
  context_.Record(std::move(event));
  context_.submitted.push_back(id);
  response.set_job_id(id.str());
  return response;
}

absl::Status JobMachine::Cancel(const JobId& id) {
  Job* job = context_.jobs.Find(id);
  if (job == nullptr) return NoSuchJob(id.str());
  if (job->state == CANCELLED) return absl::OkStatus();
  if (HasEnded(*job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id.str(), " has already ended: ", JobState_Name(job->state)));
  }
  EndJob(context_, job, CANCELLED, absl::StrCat("canceled by ", context_.ActorText()));
  return absl::OkStatus();
}

absl::Status JobMachine::Resize(const ResizeJobRequest& request) {
  Job* job = context_.jobs.Find(JobId(request.job_id()));
  if (job == nullptr) return NoSuchJob(request.job_id());
  if (HasEnded(*job) || job->spec.session()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", request.job_id(), job->spec.session() ? " is a session, which keeps its mesh" : " has already ended"));
  }
  if (request.devices() > 0) return ResizeDevices(job, request);
  if (IsCanonical(job->spec)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", request.job_id(), " runs in the canonical mode, in which its mesh of ", MeshText(job->mesh),
        " cannot change, because the bits of the results depend on it; choose another number of devices: xlad resize ",
        request.job_id(), " --devices N"));
  }
  XLAD_RETURN_IF_ERROR(CheckMesh(request.mesh()));
  const bool same_axes =
      std::equal(request.mesh().begin(), request.mesh().end(), job->spec.mesh().begin(), job->spec.mesh().end(),
                 [](const MeshAxis& a, const MeshAxis& b) { return a.name() == b.name(); });
  if (!same_axes) {
    return absl::InvalidArgumentError(absl::StrCat("found mesh ", MeshText(request.mesh()), ", expected sizes for the ",
                                                   "axes of ", MeshText(job->spec.mesh()), ", in this order"));
  }
  if (MeshText(request.mesh()) == MeshText(job->mesh)) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(CheckGrowth(*job, DeviceCount(request.mesh()), absl::StrCat("mesh ", MeshText(request.mesh()))));
  JobEvent event = context_.NewEvent(job->id);
  *event.mutable_resized()->mutable_mesh() = request.mesh();
  StopBuilds(job->id);
  RecordResize(job, std::move(event));
  return absl::OkStatus();
}

// FailedPrecondition if a running job would be stopped for more devices than the workers have. Suspect workers count,
// because they may reconnect.
absl::Status JobMachine::CheckGrowth(const Job& job, int64_t wanted, const std::string& for_what) const {
  int64_t current = 0;
  for (const Peer& peer : job.placed.peers()) current += DevicesOf(peer);
  if (!job.attempt_running || wanted <= current) return absl::OkStatus();
  std::vector<WorkerDevices> offers;
  for (const auto& [id, worker] : context_.workers) {
    const bool stays = worker.state == WorkerState::kAlive || worker.state == WorkerState::kSuspect;
    if (!stays || worker.leaving || context_.jobs.drained().contains(id)) continue;
    for (const DeviceOffer& offer : OffersOf(worker.registration)) {
      offers.push_back({&worker.registration, offer, offer.count()});
    }
  }
  const int64_t found = SelectTargets(offers, wanted, job.spec.device_name()).devices;
  if (wanted <= found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.id.str(), " continues on its ", DeviceCountText(current), ": found workers with ",
                   DeviceCountText(found), " that it may use, expected ", wanted, " for ", for_what,
                   "; start workers with ", DeviceCountText(wanted - found, " more"),
                   " (xlad worker), then resize it"));
}

// Resizes a job in the canonical mode to another number of devices.
absl::Status JobMachine::ResizeDevices(Job* job, const ResizeJobRequest& request) {
  const int64_t shards = DeviceCount(job->mesh);
  if (!IsCanonical(job->spec) || shards % request.devices() != 0 || !request.mesh().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", DeviceCountText(request.devices()), " for job ", job->id.str(), ", which runs in the ",
        ModeText(job->spec), " mode with ", shards, " logical shards; expected ",
        IsCanonical(job->spec) ? "a number that divides the shards, and no mesh" : "a mesh in this mode"));
  }
  if (request.devices() == job->devices) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(CheckGrowth(*job, request.devices(), absl::StrCat("--devices ", request.devices())));
  JobEvent event = context_.NewEvent(job->id);
  event.mutable_resized()->set_devices(request.devices());
  RecordResize(job, std::move(event));
  return absl::OkStatus();
}

void JobMachine::RecordResize(Job* job, JobEvent event) {
  event.mutable_resized()->set_reason(absl::StrCat(context_.ActorText(), " asked for it"));
  context_.Record(std::move(event));
  context_.actor.clear();  // The tick may record events of other jobs, which have another cause.
  context_.Changed(job->id);
  context_.reschedule = true;
  attempts_.OnTick();  // The tick stops the running attempt.
}

absl::StatusOr<ResolvedResume> JobMachine::NewestCheckpoint(const JobId& id) const {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr) return NoSuchJob(id.str());
  if (job->checkpoints.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job ", id.str(), " has no checkpoint to resume from"));
  }
  const Checkpoint& newest = job->checkpoints.back();
  return ResolvedResume{newest.uri, newest.digest, newest.step};
}

JobStatus JobMachine::StatusOf(const Job& job) const {
  JobStatus status;
  status.set_id(job.id.str());
  status.set_name(job.spec.name());
  status.set_state(job.state);
  *status.mutable_mesh() = job.attempt_running ? job.placed_mesh : job.mesh;
  status.set_step(job.state == SUCCEEDED && !job.spec.session() ? job.spec.steps() : job.step);
  status.set_steps(job.spec.steps());
  if (job.has_loss) status.set_loss(job.loss);
  status.set_reason(context_.ReasonOf(job));
  status.set_attempt(job.attempt);
  status.set_compile_ms(job.compile_ms);
  status.set_cached(job.cached);
  status.set_quick_code(job.RunsQuickCode());
  for (const std::string& warning : job.warnings) status.add_warnings(warning);
  status.set_session(job.spec.session());
  status.set_final_state_blob(job.final_state_blob);
  if (job.state == SUCCEEDED) *status.mutable_report() = job.report;
  status.set_owner(OwnerText(job));
  status.set_submitted_unix_ns(job.submitted_unix_ns);
  status.set_since_unix_ns(job.since_unix_ns);
  status.set_failures(job.failures);
  status.set_on_loss(job.spec.on_loss());
  status.set_reduction_mode(job.spec.compile().reduction_mode());
  int64_t devices = 0;
  for (const Peer& peer : job.placed.peers()) devices += DevicesOf(peer);
  status.set_devices(devices);
  status.set_checkpoint_error(job.checkpoint_error);
  if (!job.checkpoints.empty()) {
    status.set_has_checkpoint(true);
    status.set_checkpoint_step(job.checkpoints.back().step);
    status.set_checkpoint_uri(job.checkpoints.back().uri);
  }
  for (const Peer& peer : job.placed.peers()) {
    JobWorker* worker = status.add_workers();
    worker->set_id(peer.worker_id());
    worker->set_host(peer.host());
    worker->set_pid(peer.pid());
    *worker->mutable_devices() = peer.devices();
    const auto known = context_.workers.find(WorkerId(peer.worker_id()));
    const bool same = known != context_.workers.end() && known->second.registration.incarnation() == peer.incarnation();
    if (const auto running = context_.attempts.find(job.id); running != context_.attempts.end()) {
      const auto progress = running->second.progress.find(peer.worker_id());
      if (progress != running->second.progress.end()) worker->set_step(progress->second);
    }
    const bool is_lost = job.lost_worker == peer.worker_id();
    worker->set_state(is_lost ? "lost"
                      : same  ? StateName(known->second, context_.jobs.drained().contains(known->first))
                              : "gone");
  }
  return status;
}

absl::StatusOr<JobStatus> JobMachine::Status(const JobId& id) const {
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr) return NoSuchJob(id.str());
  JobStatus status = StatusOf(*job);
  for (const Checkpoint& checkpoint : job->checkpoints) {
    JobCheckpoint* out = status.add_checkpoints();
    out->set_step(checkpoint.step);
    out->set_uri(checkpoint.uri);
    out->set_digest(checkpoint.digest);
    out->set_unix_ns(checkpoint.unix_ns);
  }
  for (const JobSpec::Result& result : job->spec.results()) {
    if (result.kind() == JobSpec::Result::LOSS || result.kind() == JobSpec::Result::METRIC) {
      status.add_metric_names(result.name());
    }
  }
  return status;
}

ListJobsResponse JobMachine::List(const ListJobsRequest& request, const std::function<bool(const Job&)>& shows) const {
  const int64_t limit = request.limit() > 0 ? std::min<int64_t>(request.limit(), kMaxPage) : kMaxPage;
  const auto is_listed = [&](const Job& job) {
    const bool is_placed = job.attempt_running && !job.spec.session();
    return (is_placed || !request.placed()) && (shows == nullptr || shows(job));
  };
  const std::vector<const Job*> page = context_.jobs.Page(JobId(request.after()), limit + 1, is_listed);
  ListJobsResponse response;
  for (const Job* job : page) {
    if (response.jobs_size() == limit) {
      response.set_next(response.jobs(response.jobs_size() - 1).id());
      break;
    }
    *response.add_jobs() = StatusOf(*job);
  }
  return response;
}

void JobMachine::StopBuilds(const JobId& id) {
  building_.erase(id);
  optimizing_.erase(id);
  quick_.erase(id);
  delayed_optimizations_.erase(id);
  context_.effects.actions.push_back(StopBuild{id});
}

int64_t JobMachine::DelayBuild(const JobId& id, const std::string& error, DelayedBuilds* delayed_builds) const {
  LogWarn("a program could not be built and is built again later", {{"job", id.str()}, {"error", error}});
  DelayedBuild& delayed = (*delayed_builds)[id];
  ++delayed.failures;
  // RetryPauseMs returns no pause for the first failure. Builds pause after their first failure, too.
  const int64_t pause_ms = RetryPauseMs(context_.options, delayed.failures + 1);
  delayed.from_ns = context_.now_ns + pause_ms * kNsPerMs;
  return pause_ms;
}

bool JobMachine::IsDelayed(const JobId& id, const DelayedBuilds& delayed_builds) const {
  const auto delayed = delayed_builds.find(id);
  return delayed != delayed_builds.end() && context_.now_ns < delayed->second.from_ns;
}

void JobMachine::BuildAgainLater(Job* job, const std::string& error) {
  const int64_t pause_ms = DelayBuild(job->id, error, &delayed_builds_);
  SetReason(job, absl::StrCat("its program could not be built: ", error, "; the next try begins after a pause of ",
                              pause_ms, " ms"));
  context_.runnable.push_back(job->id);
  context_.Changed(job->id);
}

void JobMachine::OnEnded(const JobId& id) {
  if (optimizing_.contains(id)) StopBuilds(id);
  building_.erase(id);
  delayed_builds_.erase(id);
  delayed_optimizations_.erase(id);
  quick_.erase(id);
  refused_since_ns_.erase(id);
  const Job* job = context_.jobs.Find(id);
  if (job == nullptr) return;
  due_.Remove(*job);
  parked_.erase(job->number);
}

void JobMachine::AfterRecovery() {
  for (const Job* job : context_.jobs.Open()) {
    due_.Add(*job);
    if (job->is_quick && job->optimizing_error.empty()) quick_.insert(job->id);
  }
}

}  // namespace xlad::service
