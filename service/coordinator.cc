// Jobs: submission, building, ending, and what clients ask. Workers are in coordinator_workers.cc.
#include "service/coordinator.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/log.h"
#include "proto/device_name.h"
#include "service/messages.h"

namespace xlad::service {
namespace {

// As clients see it (proto/job.proto).
const char* StateName(WorkerState state) {
  switch (state) {
    case WorkerState::kAlive: return "alive";
    case WorkerState::kLost: return "lost";
    case WorkerState::kDrained: return "drained";
  }
  return "";
}

}  // namespace

CoordinatorCore::CoordinatorCore(const CoordinatorOptions& options, Environment environment)
    : options_(options), environment_(std::move(environment)), incarnation_(environment_.random->Next()) {}

absl::Status CoordinatorCore::Recover(Actions* actions) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<JobEvent> events, environment_.log->ReadEvents());
  for (const JobEvent& event : events) {
    Job& job = jobs_[event.job_id()];
    Apply(event, &job);
    if (event.has_submitted()) {
      order_.push_back(job.id);
      client_keys_[job.client_key] = job.id;
    }
    if (event.has_placed()) generation_ = std::max(generation_, event.placed().generation());
  }
  for (auto& [id, job] : jobs_) {
    XLAD_ASSIGN_OR_RETURN(const auto last, environment_.log->LastMetrics(id));
    if (last.has_value()) {
      job.step = std::max(job.first_step, last->step() + 1);
      NoteLoss(*last, &job);
    }
    if (job.attempt_running) {
      AttemptInfo& attempt = attempts_[id];
      attempt.placed_ns = environment_.clock->NowNs();
      attempt.awaiting_adoption = true;
      attempt.lease_until = job.spec.steps();
    } else if (!HasEnded(job)) {
      MaybeBuild(&job, actions);
    }
  }
  return absl::OkStatus();
}

absl::Status CoordinatorCore::Record(std::vector<JobEvent> events) {
  const absl::Status status = environment_.log->Append(&events);
  if (!status.ok()) {
    LogError("job log cannot be written", {{"error", std::string(status.message())}});
    return status;
  }
  for (const JobEvent& event : events) {
    Job& job = jobs_[event.job_id()];
    Apply(event, &job);
    if (HasEnded(job)) sessions_.erase(job.id);
    LogInfo(Describe(event), {{"job", event.job_id()}});
  }
  return absl::OkStatus();
}

JobEvent CoordinatorCore::NewEvent(const std::string& job_id) const {
  JobEvent event;
  event.set_job_id(job_id);
  event.set_unix_ns(environment_.clock->WallNs());
  return event;
}

Job* CoordinatorCore::Find(const std::string& job_id, int64_t attempt) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return nullptr;
  Job& job = found->second;
  return job.attempt_running && job.attempt == attempt ? &job : nullptr;
}

absl::StatusOr<SubmitJobResponse> CoordinatorCore::Submit(const SubmitJobRequest& request, Actions* actions) {
  if (request.client_key().empty()) return absl::InvalidArgumentError("found no client_key, expected a unique one");
  const std::string digest = Sha256Hex(request.spec().SerializeAsString());
  SubmitJobResponse response;
  if (const auto known = client_keys_.find(request.client_key()); known != client_keys_.end()) {
    if (jobs_.at(known->second).spec_digest != digest) {
      return absl::AlreadyExistsError(absl::StrCat("client_key ", request.client_key(), " belongs to job ",
                                                   known->second, ", which has another spec"));
    }
    response.set_job_id(known->second);
    response.set_existed(true);
    return response;
  }
  std::string id;
  do {
    id = absl::StrCat("job-", environment_.random->Hex(4));
  } while (jobs_.contains(id));
  JobEvent event = NewEvent(id);
  event.mutable_submitted()->set_client_key(request.client_key());
  event.mutable_submitted()->set_spec_digest(digest);
  *event.mutable_submitted()->mutable_spec() = request.spec();
  if (const absl::Status status = Record({event}); !status.ok()) {
    jobs_.erase(id);
    return status;
  }
  order_.push_back(id);
  client_keys_[request.client_key()] = id;
  if (request.spec().session()) {
    sessions_[id].released_ns = environment_.clock->NowNs();
    Schedule(actions);
  } else {
    MaybeBuild(&jobs_[id], actions);
  }
  response.set_job_id(id);
  return response;
}

// Starts the build if a worker is registered: its target decides what the program is built for.
void CoordinatorCore::MaybeBuild(Job* job, Actions* actions) {
  const bool built = !job->executable_digest.empty() || build_targets_.contains(job->id);
  if (HasEnded(*job) || job->spec.session() || built) return;
  const std::optional<Target> target = TargetFor(job, actions);
  if (!target.has_value()) return;
  build_targets_[job->id] = *target;
  job->state = COMPILING;
  job->reason.clear();
  actions->push_back(StartBuild{job->id, *target});
  actions->push_back(JobChanged{job->id});
}

// Returns the kind of device for a job that has not been placed yet, or nullopt if the registered workers do not decide
// it. A job that they can never run fails after a grace period in which more workers may register.
std::optional<Target> CoordinatorCore::TargetFor(Job* job, Actions* actions) {
  TargetSelection selection = SelectTarget(AllOffers(), DeviceCount(job->spec), job->spec.device_name());
  if (!selection.is_refusal) refused_since_ns_.erase(job->id);
  if (selection.target.has_value()) return selection.target;
  job->reason = selection.reason;
  if (!selection.is_refusal) return std::nullopt;
  const int64_t now_ns = environment_.clock->NowNs();
  const int64_t since_ns = refused_since_ns_.emplace(job->id, now_ns).first->second;
  if (now_ns - since_ns >= options_.device_kind_grace_ms * kNsPerMs) {
    EndJob(job, FAILED, selection.reason, "", actions);
    if (HasEnded(*job)) refused_since_ns_.erase(job->id);
  }
  return std::nullopt;
}

void CoordinatorCore::OnBuilt(const std::string& job_id, const absl::StatusOr<BuiltProgram>& built,
                              Actions* actions) {
  Job& job = jobs_.at(job_id);
  if (HasEnded(job)) return;
  if (!built.ok()) {
    EndJob(&job, FAILED, std::string(built.status().message()), "", actions);
    return;
  }
  JobEvent event = NewEvent(job_id);
  event.mutable_built()->set_executable_digest(built->executable_digest);
  event.mutable_built()->set_compile_ms(built->compile_ms);
  event.mutable_built()->set_cached(built->cached);
  for (const std::string& warning : built->warnings) event.mutable_built()->add_warnings(warning);
  if (!Record({event}).ok()) {
    build_targets_.erase(job_id);  // The next tick starts the build again.
    job.state = PENDING;
    return;
  }
  actions->push_back(JobChanged{job_id});
  Schedule(actions);
}

absl::Status CoordinatorCore::Cancel(const std::string& job_id, Actions* actions) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return absl::NotFoundError(absl::StrCat("no job ", job_id));
  Job& job = found->second;
  if (job.state == CANCELLED) return absl::OkStatus();
  if (HasEnded(job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " has ended already: ", JobState_Name(job.state)));
  }
  JobEvent event = NewEvent(job_id);
  event.mutable_ended()->set_state(CANCELLED);
  event.mutable_ended()->set_reason("cancelled by a client");
  XLAD_RETURN_IF_ERROR(Record({event}));
  if (attempts_.erase(job_id) > 0) {
    SendToAll(job, AbortMessage(job_id, job.attempt, "cancelled by a client"), actions);
  }
  actions->push_back(JobChanged{job_id});
  ReleaseDrainedWorkers(actions);
  Schedule(actions);
  return absl::OkStatus();
}

void CoordinatorCore::EndJob(Job* job, JobState state, const std::string& reason, const std::string& blob,
                             Actions* actions) {
  JobEvent event = NewEvent(job->id);
  event.mutable_ended()->set_state(state);
  event.mutable_ended()->set_reason(reason);
  event.mutable_ended()->set_final_state_blob(blob);
  if (!Record({event}).ok()) return;  // The next message or tick tries again.
  if (attempts_.erase(job->id) > 0) SendToAll(*job, ForgetMessage(job->id, job->attempt), actions);
  actions->push_back(JobChanged{job->id});
  ReleaseDrainedWorkers(actions);
  Schedule(actions);
}

// Ends an attempt without its state. The job restarts from its last saved state unless it has used all its attempts.
void CoordinatorCore::EndAttempt(Job* job, const std::string& reason, const std::string& lost_worker,
                                 Actions* actions) {
  std::vector<JobEvent> events(1, NewEvent(job->id));
  AttemptEnded* ended = events[0].mutable_attempt_ended();
  ended->set_attempt(job->attempt);
  ended->set_reason(reason);
  ended->set_lost_worker(lost_worker);
  ended->set_step(job->step);
  const bool retry = job->failures + 1 < std::max(1, job->spec.max_attempts());
  if (!retry) {
    events.push_back(NewEvent(job->id));
    events[1].mutable_ended()->set_state(FAILED);
    events[1].mutable_ended()->set_reason(reason);
  }
  if (!Record(events).ok()) return;
  attempts_.erase(job->id);
  SendToAll(*job, AbortMessage(job->id, job->attempt, reason), actions);
  actions->push_back(JobChanged{job->id});
  ReleaseDrainedWorkers(actions);
  Schedule(actions);
}

bool CoordinatorCore::OnStateAssembled(const AssembleState& request, const absl::StatusOr<std::string>& blob,
                                       Actions* actions) {
  Job* job = Find(request.job_id, request.attempt);
  if (job == nullptr) return true;
  AttemptInfo& attempt = attempts_[job->id];
  attempt.assembling = false;
  if (!blob.ok()) {
    EndAttempt(job, absl::StrCat("state after step ", request.step, " is incomplete: ", blob.status().message()), "",
               actions);
    return !job->attempt_running;
  }
  if (request.step == job->spec.steps()) {
    EndJob(job, SUCCEEDED, "", *blob, actions);
    return !job->attempt_running;
  }
  JobEvent event = NewEvent(job->id);
  AttemptEnded* ended = event.mutable_attempt_ended();
  ended->set_attempt(job->attempt);
  ended->set_reason(attempt.stop_reason);
  ended->set_step(request.step);
  ended->set_state_blob(*blob);
  if (!Record({event}).ok()) return false;
  attempts_.erase(job->id);
  SendToAll(*job, ForgetMessage(job->id, job->attempt), actions);
  actions->push_back(JobChanged{job->id});
  ReleaseDrainedWorkers(actions);
  Schedule(actions);
  return true;
}

JobStatus CoordinatorCore::StatusOf(const Job& job) const {
  JobStatus status;
  status.set_id(job.id);
  status.set_name(job.spec.name());
  status.set_state(job.state);
  *status.mutable_mesh() = job.spec.mesh();
  status.set_step(job.state == SUCCEEDED && !job.spec.session() ? job.spec.steps() : job.step);
  status.set_steps(job.spec.steps());
  if (job.has_loss) status.set_loss(job.loss);
  status.set_reason(job.reason);
  status.set_attempt(job.attempt);
  status.set_compile_ms(job.compile_ms);
  status.set_cached(job.cached);
  status.set_session(job.spec.session());
  status.set_final_state_blob(job.final_state_blob);
  status.set_submitted_unix_ns(job.submitted_unix_ns);
  for (const Peer& peer : job.placed.peers()) {
    JobWorker* worker = status.add_workers();
    worker->set_id(peer.worker_id());
    worker->set_host(peer.host());
    worker->set_pid(peer.pid());
    *worker->mutable_devices() = peer.devices();
    const auto known = workers_.find(peer.worker_id());
    const bool same = known != workers_.end() && known->second.registration.incarnation() == peer.incarnation();
    if (job.lost_worker == peer.worker_id()) {
      worker->set_state("lost");
    } else {
      worker->set_state(same ? StateName(known->second.state) : "gone");
    }
  }
  return status;
}

std::vector<JobStatus> CoordinatorCore::ListJobs() const {
  std::vector<JobStatus> jobs;
  for (const std::string& id : order_) jobs.push_back(StatusOf(jobs_.at(id)));
  return jobs;
}

absl::StatusOr<JobStatus> CoordinatorCore::GetJob(const std::string& job_id) const {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return absl::NotFoundError(absl::StrCat("no job ", job_id));
  return StatusOf(found->second);
}

ListWorkersResponse CoordinatorCore::ListWorkers() const {
  ListWorkersResponse response;
  for (const auto& [id, info] : workers_) {
    ListWorkersResponse::Worker* worker = response.add_workers();
    worker->set_id(id);
    worker->set_host(info.registration.host());
    worker->set_pid(info.registration.pid());
    worker->set_devices(info.registration.devices());
    worker->set_state(info.draining && info.state == WorkerState::kAlive ? "draining" : StateName(info.state));
    for (const auto& [job_id, attempt] : attempts_) {
      for (const Peer& peer : jobs_.at(job_id).placed.peers()) {
        if (peer.worker_id() == id) worker->set_job_id(job_id);
      }
    }
  }
  return response;
}

// Places pending jobs, oldest first. A job that needs more devices than the cluster has does not block later jobs. A
// job that waits for busy devices does, so that later small jobs cannot starve it.
void CoordinatorCore::Schedule(Actions* actions) {
  int64_t cluster = 0;
  for (const auto& [id, worker] : workers_) {
    if (worker.state == WorkerState::kAlive && !worker.draining) cluster += worker.registration.devices();
  }
  for (const std::string& id : order_) {
    Job& job = jobs_.at(id);
    if (job.state != PENDING || job.attempt_running) continue;
    if (job.executable_digest.empty() && !job.spec.session()) {
      MaybeBuild(&job, actions);
      continue;
    }
    const int64_t wanted = DeviceCount(job.spec);
    if (wanted <= cluster && Place(&job, actions)) continue;
    int64_t free = 0;
    for (const WorkerDevices& offer : FreeOffers()) free += offer.devices;
    if (!refused_since_ns_.contains(id)) {
      job.reason = absl::StrCat("waits for ", wanted, " devices, ", free, " are free of ", cluster);
    }
    if (wanted <= cluster) return;
  }
}

std::vector<WorkerDevices> CoordinatorCore::AllOffers() const {
  std::vector<WorkerDevices> offers;
  for (const auto& [id, worker] : workers_) {
    if (worker.state != WorkerState::kAlive || worker.connection == 0 || worker.draining) continue;
    for (const DeviceOffer& offer : OffersOf(worker.registration)) {
      offers.push_back({worker.registration, offer, offer.count()});
    }
  }
  return offers;
}

std::vector<WorkerDevices> CoordinatorCore::FreeOffers() const {
  std::vector<WorkerDevices> offers = AllOffers();
  for (const auto& [job_id, attempt] : attempts_) {
    for (const Peer& peer : jobs_.at(job_id).placed.peers()) {
      const auto used = std::find_if(offers.begin(), offers.end(), [&](const WorkerDevices& offer) {
        return offer.registration.worker_id() == peer.worker_id() &&
               (peer.device_name().empty() || peer.device_name() == DeviceName(offer.offer.target()));
      });
      if (used != offers.end()) used->devices -= peer.devices_size();
    }
  }
  std::erase_if(offers, [](const WorkerDevices& offer) { return offer.devices <= 0; });
  return offers;
}

bool CoordinatorCore::Place(Job* job, Actions* actions) {
  const std::vector<WorkerDevices> free = FreeOffers();
  if (job->spec.session()) {  // The programs of a session are compiled for the devices that it is placed on.
    if (!TargetFor(job, actions).has_value()) return HasEnded(*job);
    for (const WorkerDevices& worker : free) {
      const Target& target = worker.offer.target();
      if (!job->spec.device_name().empty() && DeviceName(target) != job->spec.device_name()) continue;
      const auto peers = PlaceOnWorkers(free, DeviceCount(job->spec), target);
      if (!peers.empty()) return PlaceOn(job, peers, {}, actions);
    }
    return false;
  }
  auto executable = environment_.load_executable(job->executable_digest);
  if (!executable.ok()) {
    EndJob(job, FAILED, absl::StrCat("executable cannot be read: ", executable.status().message()), "", actions);
    return true;
  }
  const std::vector<Peer> peers = PlaceOnWorkers(free, DeviceCount(job->spec), executable->target());
  if (peers.empty()) return false;
  const auto plans = PlanCollectives(*executable, peers);
  if (!plans.ok()) {
    EndJob(job, FAILED, std::string(plans.status().message()), "", actions);
    return true;
  }
  return PlaceOn(job, peers, *plans, actions);
}

bool CoordinatorCore::PlaceOn(Job* job, const std::vector<Peer>& peers, const std::vector<CollectivePlanProto>& plans,
                              Actions* actions) {
  JobEvent event = NewEvent(job->id);
  AttemptPlaced* placed = event.mutable_placed();
  placed->set_attempt(job->attempt + 1);
  placed->set_generation(generation_ + 1);
  for (const Peer& peer : peers) *placed->add_peers() = peer;
  for (const CollectivePlanProto& plan : plans) *placed->add_plans() = plan;
  placed->set_first_step(job->first_step);
  placed->set_state_blob(job->state_blob.empty() ? job->spec.state_blob() : job->state_blob);
  if (!Record({event}).ok()) return false;
  ++generation_;
  AttemptInfo& attempt = attempts_[job->id] = AttemptInfo();
  attempt.placed_ns = environment_.clock->NowNs();
  for (const Peer& peer : peers) {
    attempt.present.insert(peer.worker_id());
    CoordinatorMessage message;
    *message.mutable_launch() = LaunchFor(*job, peer);
    Send(peer.worker_id(), std::move(message), actions);
  }
  actions->push_back(JobChanged{job->id});
  return true;
}

}  // namespace xlad::service
