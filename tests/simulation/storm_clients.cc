#include "tests/simulation/storm_clients.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/mesh.h"
#include "service/attempts/ending.h"
#include "tests/simulation/storm.h"

namespace xlad::simulation {
namespace {

using service::JobId;
using service::WorkerId;

// A client repeats a submission that is not answered within kPatienceMs. It repeats other unanswered requests after a
// random time from kMinPatienceMs to kPatienceMs. An operator does so after a random time from kMinPatienceMs to
// kOperatorPatienceMs.
constexpr int64_t kPatienceMs = 2000;
constexpr int64_t kMinPatienceMs = 50;
constexpr int64_t kOperatorPatienceMs = 300;
constexpr int64_t kMaxSilentMs = 3000;  // A waiting job must have a reason within this time.
constexpr int64_t kMetricsPerRead = 50;
constexpr int64_t kMaxSteps = 150;
constexpr int64_t kMaxStepsOfLongJobs = 800;
constexpr int64_t kMaxStopMs = 6000;        // An attempt whose workers can all be reached stops within this time.
constexpr int64_t kMaxStandstillMs = 8000;  // Such an attempt makes progress within this time.
constexpr int64_t kMaxIdleMs = 5000;        // A job that can be placed is placed within this time.
constexpr int64_t kTickGraceMs = 1000;      // A silent worker counts as lost at the next tick.
constexpr int64_t kMaxDeadStartMs = 5000;   // An attempt does not wait longer than this for a worker that has ended.

// Whether the job runs and would have to be stopped for more devices than the workers have.
bool IsTooLarge(const service::CoordinatorCore& core, const ResizeJobRequest& request) {
  const auto& context = core.context();
  const service::Job* job = context.jobs.Find(JobId(request.job_id()));
  if (job == nullptr || !job->attempt_running) return false;
  const int64_t wanted = service::DeviceCount(request.mesh());
  int64_t devices = 0;
  for (const auto& [id, worker] : context.workers) {
    const bool is_gone = worker.state == service::WorkerState::kLost || worker.state == service::WorkerState::kMayExit;
    if (!is_gone && !worker.leaving && !context.jobs.drained().contains(id)) devices += worker.registration.devices();
  }
  const bool changes = MeshText(request.mesh()) != MeshText(job->mesh);
  return changes && wanted > service::DeviceCount(job->placed_mesh) && wanted > devices;
}

}  // namespace

struct StormClients::Client {
  std::string key;
  SubmitJobRequest request;
  int64_t fails_at = -1;         // The step at which the program itself fails.
  std::string job_id;            // Empty until the submission is acknowledged.
  int64_t next_step = 0;         // The first step whose metrics the client has not seen.
  int64_t silent_since_ns = -1;  // The time since which the job waits without a reason; -1 if it does not.
  int tries = 0;
  bool wants_cancel = false;
  int resizes = 0;            // The number of times that the client requests another mesh.
  bool is_canceled = false;  // Whether the cancellation was acknowledged.
};

StormClients::StormClients(Storm* storm, int jobs, int64_t max_devices) : storm_(storm), max_devices_(max_devices) {
  for (int j = 0; j < jobs; ++j) AddClient(j);
}

StormClients::~StormClients() = default;

void StormClients::AddClient(int number) {
  Random& random = storm_->random();
  auto client = std::make_unique<Client>();
  const int owners = storm_->owners();
  client->key = absl::StrCat(owners == 0 ? "" : absl::StrCat("@user", number % owners, "/"), "job", number);
  client->request.set_client_key(client->key);
  JobSpec* spec = client->request.mutable_spec();
  spec->set_name(client->key);
  const bool is_long = storm_->kind() != StormKind::kMixed;
  const bool has_steps = random.Below(6) != 0;
  spec->set_steps(has_steps ? storm_->Between(0, is_long ? kMaxStepsOfLongJobs : kMaxSteps) : 0);
  spec->set_keep_final_state(random.Below(4) != 0);
  // Some jobs do not write shards during the run. A task of an ended attempt is told about the end at the latest when
  // it writes a shard, so without shards other messages must tell it.
  spec->mutable_checkpoint()->set_every_steps(random.Below(4) == 0 ? 0 : storm_->Between(1, 30));
  spec->mutable_checkpoint()->set_every_ms(random.Below(2) == 0 ? 0 : storm_->Between(200, 3000));
  spec->mutable_checkpoint()->set_keep(static_cast<int32_t>(storm_->Between(0, 3)));
  constexpr JobSpec::OnLoss kPolicies[] = {JobSpec::RESTART, JobSpec::RESTART, JobSpec::WAIT, JobSpec::SHRINK};
  spec->set_on_loss(kPolicies[random.Below(std::size(kPolicies))]);
  if (storm_->kind() == StormKind::kStops && random.Below(2) == 0) spec->set_on_loss(JobSpec::SHRINK);
  if (random.Below(storm_->kind() == StormKind::kLong ? 2 : 4) == 0) spec->set_max_attempts(storm_->Between(1, 4));
  spec->add_mesh()->set_name("dp");
  const bool shrinks = storm_->kind() == StormKind::kStops && spec->on_loss() == JobSpec::SHRINK;
  spec->mutable_mesh(0)->set_size(storm_->Between(shrinks ? max_devices_ / 2 : 1, max_devices_));
  if (random.Below(8) == 0 && spec->steps() > 0) client->fails_at = storm_->Between(0, spec->steps() - 1);
  client->wants_cancel = random.Below(10) == 0;
  // A resize by a client would hide errors of an earlier resize by the coordinator.
  client->resizes = storm_->kind() == StormKind::kStops ? (shrinks ? 0 : 4) : random.Below(3) == 0 ? 2 : 0;
  clients_.push_back(std::move(client));
}

void StormClients::Start(int64_t storm_ms) {
  for (const auto& client : clients_) {
    storm_->After(storm_->Between(0, storm_ms), [this, c = client.get()] { Submit(c); });
  }
  storm_->After(storm_->Between(0, storm_ms), [this] { Operate(); });
  CheckJobs();
}

int64_t StormClients::FailsAt(const std::string& key) const {
  const auto found =
      std::find_if(clients_.begin(), clients_.end(), [&](const auto& client) { return client->key == key; });
  return found == clients_.end() ? -1 : (*found)->fails_at;
}

// --- Requests.

void StormClients::Submit(Client* client) {
  if (!client->job_id.empty()) return;
  const int attempt = ++client->tries;
  storm_->After(kPatienceMs, [this, client] { Submit(client); });
  const auto response = std::make_shared<absl::StatusOr<SubmitJobResponse>>();
  storm_->Ask([client, response](Core& c) { *response = c.Submit(client->request); },
              [this, client, response](const absl::Status& status) {
                if (!status.ok() || !response->ok()) return;
                storm_->model().Acknowledge(client->key, (*response)->job_id());
                if (storm_->random().Below(4) == 0 || !client->job_id.empty()) return;  // The answer is lost.
                client->job_id = (*response)->job_id();
                if (client->wants_cancel) storm_->After(storm_->Between(0, 10'000), [this, client] { Cancel(client); });
                for (int r = 0; r < client->resizes; ++r) {
                  storm_->After(storm_->Between(0, 10'000), [this, client] { Resize(client); });
                }
              });
  storm_->Note(absl::StrCat(client->key, " is submitted, try ", attempt));
}

void StormClients::Insist(int64_t patience_ms, const Request& request,
                          const std::function<void(const absl::Status&)>& answered) {
  Insist(patience_ms, request, answered, std::make_shared<bool>(false));
}

void StormClients::Insist(int64_t patience_ms, const Request& request,
                          const std::function<void(const absl::Status&)>& answered,
                          const std::shared_ptr<bool>& is_answered) {
  if (*is_answered) return;
  const auto result = std::make_shared<absl::Status>();
  const auto answer = [is_answered, result, answered, this](const absl::Status& committed) {
    if (!committed.ok() || *is_answered) return;
    if (!storm_->is_calm() && storm_->random().Below(4) == 0) return;  // The answer is lost.
    *is_answered = true;
    answered(*result);
  };
  storm_->Ask([request, result](Core& core) { *result = request(core); }, answer);
  storm_->After(storm_->Between(kMinPatienceMs, patience_ms),
                [=, this] { Insist(patience_ms, request, answered, is_answered); });
}

void StormClients::Cancel(Client* client) {
  storm_->Note(absl::StrCat(client->key, " is to be canceled"));
  Insist(
      kPatienceMs, [client](Core& core) { return core.Cancel(JobId(client->job_id)); },
      [this, client](const absl::Status& status) {
        const auto found = storm_->model().jobs().find(client->job_id);
        if (found == storm_->model().jobs().end()) return storm_->Violate(client->key + " is lost");
        const LogModel::Job& job = found->second;
        client->is_canceled = status.ok();
        if (status.ok() && !(job.ended && job.end_state == CANCELLED)) {
          storm_->Violate(absl::StrCat(client->key, ": the cancellation was acknowledged and is not durable"));
        }
        if (!status.ok() && (!job.ended || job.end_state == CANCELLED)) {
          storm_->Violate(absl::StrCat(client->key, " cannot be canceled: ", status.ToString()));
        }
      });
}

void StormClients::Resize(Client* client) {
  ResizeJobRequest request;
  request.set_job_id(client->job_id);
  *request.mutable_mesh() = client->request.spec().mesh();
  request.mutable_mesh(0)->set_size(storm_->Between(1, max_devices_));
  storm_->Note(absl::StrCat(client->key, " is to be resized"));
  const auto ask = [this, client, request](Core& core) {
    const bool is_too_large = IsTooLarge(core, request);
    const absl::Status status = core.Resize(request);
    if (is_too_large && status.ok()) storm_->Violate(client->key + " is stopped for devices that no worker has");
    return is_too_large ? absl::OkStatus() : status;
  };
  Insist(kPatienceMs, ask, [this, client](const absl::Status& status) {
    const auto found = storm_->model().jobs().find(client->job_id);
    if (found == storm_->model().jobs().end()) return storm_->Violate(client->key + " is lost");
    if (!status.ok() && !found->second.ended) {
      storm_->Violate(absl::StrCat(client->key, " cannot be resized: ", status.ToString()));
    }
  });
}

void StormClients::Operate() {
  if (storm_->is_calm()) return;
  const int64_t often = storm_->kind() == StormKind::kStops ? 4 : 1;
  storm_->After(storm_->Between(1000 / often, 8000 / often), [this] { Operate(); });
  if (operator_waits_ || storm_->is_quiet()) return;
  const std::string worker = storm_->AnyWorker();
  SetDrain(worker, !drained_.contains(worker));
}

// An operator who drains a worker often undrains it soon.
void StormClients::SetDrain(const std::string& worker, bool drain) {
  if (operator_waits_) return;
  operator_waits_ = true;
  storm_->Note(absl::StrCat("an operator ", drain ? "drains " : "undrains ", worker));
  const auto ask = [drain, id = WorkerId(worker), this](Core& core) {
    if (storm_->is_calm()) return absl::CancelledError("operators make no requests after the storm");
    return drain ? core.Drain(id) : core.Undrain(id);
  };
  Insist(kOperatorPatienceMs, ask, [this, drain, worker](const absl::Status& status) {
    operator_waits_ = false;
    if (drain && status.ok()) drained_.insert(worker);
    if (drain && storm_->random().Below(4) != 0) {
      storm_->After(storm_->Between(0, 1000), [this, worker] {
        if (drained_.contains(worker)) SetDrain(worker, /*drain=*/false);
      });
    }
    if (!drain) drained_.erase(worker);
    if (storm_->is_calm()) return;  // The worker may have been undrained meanwhile, perhaps in the same batch.
    if (status.ok() && storm_->model().drained().contains(worker) != drain) {
      storm_->Violate(
          absl::StrCat("the ", drain ? "drain" : "undrain", " of ", worker, " was acknowledged and is not durable"));
    }
  });
}

// Undrains all drained workers, including those whose drain was not acknowledged. The requests are lost while the
// coordinator does not run, so this function repeats itself.
void StormClients::Repair() {
  for (const std::string& worker : storm_->model().drained()) {
    storm_->Ask([id = WorkerId(worker)](Core& core) { (void)core.Undrain(id); }, nullptr);
  }
  storm_->After(kPatienceMs, [this] { Repair(); });
}

// --- Checks of the clients' observations.

// Reads the metrics of new steps and checks that they arrive once, in order and without a gap.
void StormClients::Watch(Client* client) {
  if (client->job_id.empty() || storm_->core() == nullptr) return;
  const auto rows = storm_->log()->ReadMetrics(JobId(client->job_id), client->next_step, kMetricsPerRead);
  if (!rows.ok()) return;
  for (const StepMetrics& row : *rows) {
    if (row.step() != client->next_step) {
      storm_->Violate(
          absl::StrCat("a watch of ", client->key, " skips from step ", client->next_step, " to ", row.step()));
    }
    client->next_step = row.step() + 1;
  }
}

// Checks that silent workers count as lost and well workers do not, that attempts do not continue with workers that are
// lost or have not reconnected, and that attempts are adopted, start, stop and progress in time.
void StormClients::CheckAttempts() {
  const auto& context = storm_->core()->context();
  for (const auto& [id, worker] : context.workers) {
    const int64_t silent_ms = (context.now_ns - worker.last_message_ns) / kNsPerMs;
    if (worker.state == service::WorkerState::kLost && storm_->IsWell(id.str())) {
      storm_->Violate(absl::StrCat("worker ", id.str(), " is well, but counts as lost"));
    }
    if (worker.state == service::WorkerState::kLost || silent_ms < context.options.lost_ms + kTickGraceMs) continue;
    storm_->Violate(absl::StrCat("worker ", id.str(), " is not lost after ", silent_ms, " ms of silence"));
  }
  for (const auto& [id, attempt] : context.attempts) {
    const auto& peers = context.jobs.Find(id)->placed.peers();
    const auto is_lost = [&](const Peer& peer) {
      const auto worker = context.workers.find(WorkerId(peer.worker_id()));
      return worker != context.workers.end() && worker->second.state == service::WorkerState::kLost;
    };
    for (const Peer& peer : peers) {
      if (attempt.awaiting_adoption || context.workers.contains(WorkerId(peer.worker_id()))) continue;
      storm_->Violate(absl::StrCat(id.str(), " is adopted although worker ", peer.worker_id(), " has not reconnected"));
    }
    // The coordinator must not yet end an attempt for a cut link of a worker that was silent itself.
    const auto is_reachable = [&](const Peer& peer) {
      const auto worker = context.workers.find(WorkerId(peer.worker_id()));
      const bool counts = worker == context.workers.end() || worker->second.links_count_from_ns <= context.now_ns;
      return storm_->IsReachable(peer.worker_id()) && (counts || !storm_->HasCutHost(peer.worker_id()));
    };
    if (!attempt.awaiting_adoption && std::any_of(peers.begin(), peers.end(), is_lost)) {
      storm_->Violate(absl::StrCat("the attempt of ", id.str(), " continues although one of its workers is lost"));
    }
    CheckStep(*context.jobs.Find(id));
    const auto is_to_leave = [&](const Peer& peer) {
      const auto worker = context.workers.find(WorkerId(peer.worker_id()));
      return worker != context.workers.end() &&
             (worker->second.leaving || context.jobs.drained().contains(worker->first));
    };
    const bool must_stop = !attempt.awaiting_adoption && std::any_of(peers.begin(), peers.end(), is_to_leave);
    if (must_stop && attempt.stop_at < 0) {
      storm_->Violate(absl::StrCat("the attempt of ", id.str(), " continues although one of its workers is drained"));
    }
    const int64_t age_ms = (context.now_ns - attempt.placed_ns) / kNsPerMs;
    if (attempt.awaiting_adoption && age_ms > context.options.adopt_window_ms + kTickGraceMs) {
      storm_->Violate(absl::StrCat("the attempt of ", id.str(), " still waits for its workers after ", age_ms, " ms"));
    }
    const bool is_free = !attempt.awaiting_adoption && std::all_of(peers.begin(), peers.end(), is_reachable);
    CheckStart(*context.jobs.Find(id), attempt.awaiting_adoption);
    CheckStop(*context.jobs.Find(id), attempt.stop_at, is_free);
    CheckProgress(*context.jobs.Find(id), is_free);
  }
}

// Checks that the shown step is not beyond the steps of this attempt.
void StormClients::CheckStep(const service::Job& job) {
  const int64_t finished = std::max(storm_->FinishedSteps(job.id.str(), job.attempt), job.placed.first_step());
  if (job.step <= finished) return;
  storm_->Violate(absl::StrCat("attempt ", job.attempt, " of ", job.id.str(), " is shown at step ", job.step,
                               ", but has finished ", finished, " steps"));
}

// Checks that a starting attempt does not wait longer than kMaxDeadStartMs for a worker that has ended.
void StormClients::CheckStart(const service::Job& job, bool awaits_adoption) {
  const bool waits = job.state == STARTING && !awaits_adoption &&
                     std::any_of(job.placed.peers().begin(), job.placed.peers().end(),
                                 [&](const Peer& peer) { return storm_->HasDied(peer.worker_id()); });
  const std::pair<std::string, int64_t> attempt(job.id.str(), job.attempt);
  if (!waits) {
    dead_since_ns_.erase(attempt);
    return;
  }
  const int64_t since_ns = dead_since_ns_.emplace(attempt, storm_->NowNs()).first->second;
  if (storm_->NowNs() - since_ns <= kMaxDeadStartMs * kNsPerMs) return;
  storm_->Violate(absl::StrCat("attempt ", job.attempt, " of ", job.id.str(), " waits for a worker that has ended"));
  dead_since_ns_.erase(attempt);
}

// Checks that the attempt stops in time. `is_free` says that faults do not hinder the attempt now.
void StormClients::CheckStop(const service::Job& job, int64_t stop_at, bool is_free) {
  const bool must_stop = stop_at >= 0 && is_free;
  Stop& stop = stops_[job.id.str()];
  const Stop now{job.attempt, must_stop ? stop_at : -1, storm_->NowNs()};
  if (stop.attempt != now.attempt || stop.step != now.step) stop = now;
  if (must_stop && storm_->NowNs() - stop.since_ns > kMaxStopMs * kNsPerMs) {
    storm_->Violate(absl::StrCat("the attempt of ", job.id.str(), " does not stop before step ", stop.step));
    stop.since_ns = storm_->NowNs();
  }
}

void StormClients::CheckProgress(const service::Job& job, bool is_free) {
  Progress& known = progress_[job.id.str()];
  const int64_t checkpoint = job.checkpoints.empty() ? -1 : job.checkpoints.back().step;
  const Progress now{job.attempt, job.step, checkpoint, job.state, storm_->NowNs()};
  if (!is_free || !(known == now)) known = now;
  if (storm_->NowNs() - known.since_ns > kMaxStandstillMs * kNsPerMs) {
    storm_->Violate(absl::StrCat("attempt ", job.attempt, " of ", job.id.str(), " makes no progress at step ", job.step,
                                 ", ", JobState_Name(job.state)));
    known.since_ns = storm_->NowNs();
  }
}

// Checks that a job for which enough devices are free does not wait, unless its policy or an older job requires that.
void StormClients::CheckIdleDevices() {
  const auto& context = storm_->core()->context();
  int64_t first = INT64_MAX;  // The oldest job that waits for other jobs. Later jobs may have to wait behind it.
  const auto note = [&](const JobId& id) {
    if (const service::Job* job = context.jobs.Find(id); job != nullptr) first = std::min(first, job->number);
  };
  note(context.blocking);
  for (const auto& [owner, id] : context.waiting) note(id);
  for (const service::Job* job : context.jobs.Open()) {  // A job for which its former workers are reserved.
    if (job->state == PENDING && absl::StrContains(job->reason, "which are back")) note(job->id);
  }
  const std::vector<service::WorkerDevices> offers = context.Offers(/*only_free=*/true);
  for (const service::Job* job : context.jobs.Open()) {
    int64_t free = 0;
    for (const service::WorkerDevices& offer : offers) {
      const bool may_have = context.options.share_workers ||
                            !context.RunsOthersOn(WorkerId(offer.registration->worker_id()), job->owner);
      if (may_have) free += offer.devices;
    }
    const int64_t pause_ms = service::RetryPauseMs(context.options, *job);
    const bool pauses = job->failed_ns >= 0 && context.now_ns < job->failed_ns + pause_ms * kNsPerMs;
    const bool wants_its_workers = job->spec.on_loss() == JobSpec::WAIT && !job->lost_worker.empty();
    const bool may_wait = job->attempt_running || pauses || wants_its_workers || first < job->number ||
                          service::DeviceCount(job->mesh) > free;
    const int64_t since_ns = idle_since_ns_.emplace(job->id.str(), storm_->NowNs()).first->second;
    if (!may_wait && storm_->NowNs() - since_ns > kMaxIdleMs * kNsPerMs) {
      storm_->Violate(absl::StrCat(job->id.str(), " waits (", JobState_Name(job->state), ", ", job->reason,
                                   ") although ", free, " devices are free"));
    }
    if (may_wait || storm_->NowNs() - since_ns > kMaxIdleMs * kNsPerMs) idle_since_ns_.erase(job->id.str());
  }
}

void StormClients::CheckJobs() {
  if (!storm_->is_responsive()) {  // All time limits begin again when the coordinator responds again.
    stops_.clear();
    progress_.clear();
    idle_since_ns_.clear();
    dead_since_ns_.clear();
    for (const auto& client : clients_) client->silent_since_ns = -1;
  }
  if (storm_->is_responsive()) {
    CheckAttempts();
    storm_->CheckNotices();
    CheckIdleDevices();
    CheckCounts();
    for (const auto& client : clients_) {
      Watch(client.get());
      if (!client->job_id.empty()) CheckSaysWhy(client.get());
    }
  }
  storm_->After(500, [this] { CheckJobs(); });
}

// Checks the coordinator's running counts of jobs by state against a full count.
void StormClients::CheckCounts() {
  const CoordinatorStatus status = storm_->core()->Status();
  std::map<std::string, int64_t> counted, found;
  for (const auto& [state, count] : status.jobs()) counted[state] = count;
  for (const auto& [number, job] : storm_->core()->context().jobs.by_number()) ++found[JobState_Name(job->state)];
  if (counted != found) storm_->Violate("the numbers of jobs by state are wrong");
}

void StormClients::CheckSaysWhy(Client* client) {
  const auto status = storm_->core()->jobs().Status(JobId(client->job_id));
  if (!status.ok()) return storm_->Violate(absl::StrCat(client->key, " is not listed: ", status.status().ToString()));
  const bool is_silent = status->state() == PENDING && status->reason().empty();
  if (!is_silent) client->silent_since_ns = -1;
  if (is_silent && client->silent_since_ns < 0) client->silent_since_ns = storm_->NowNs();
  if (is_silent && storm_->NowNs() - client->silent_since_ns > kMaxSilentMs * kNsPerMs) {
    storm_->Violate(absl::StrCat(client->key, " waits without a reason"));
    client->silent_since_ns = storm_->NowNs();
  }
}

bool StormClients::HasSettled(const Client& client) const {
  const auto found = storm_->model().jobs().find(client.job_id);
  if (found == storm_->model().jobs().end()) return false;
  if (found->second.ended) return true;
  // A job may wait for a worker that never comes back if its policy is --on-loss wait.
  const auto status = storm_->core()->jobs().Status(JobId(client.job_id));
  return client.request.spec().on_loss() == JobSpec::WAIT && status.ok() && status->state() == PENDING &&
         absl::EndsWith(status->reason(), "(--on-loss wait)") && storm_->HasLostWorkers();
}

bool StormClients::AllEnded() const {
  return storm_->core() != nullptr &&
         std::all_of(clients_.begin(), clients_.end(), [&](const auto& client) { return HasSettled(*client); });
}

void StormClients::CheckEnd() {
  for (const auto& client : clients_) {
    for (int64_t before = -1; before != client->next_step;) {  // Reads up to the last recorded step.
      before = client->next_step;
      Watch(client.get());
    }
    CheckEndOf(client.get());
  }
}

// Checks that the job has ended as its spec and its client's requests allow, or waits for a worker that never comes
// back. The client of a job that succeeded must have seen the metrics of all steps.
void StormClients::CheckEndOf(Client* client) {
  const auto found = storm_->model().jobs().find(client->job_id);
  const JobSpec& spec = client->request.spec();
  if (found == storm_->model().jobs().end() || !found->second.ended) {
    if (storm_->core() != nullptr && HasSettled(*client)) return;
    const auto status = storm_->core() != nullptr ? storm_->core()->jobs().Status(JobId(client->job_id))
                                                  : absl::StatusOr<JobStatus>(absl::UnavailableError("no coordinator"));
    return storm_->Violate(absl::StrCat(client->key, " (", client->job_id, ") has not ended: ",
                                        status.ok()
                                            ? absl::StrCat(JobState_Name(status->state()), ": ", status->reason())
                                            : status.status().ToString()));
  }
  const JobState end = found->second.end_state;
  const bool may_fail = client->fails_at >= 0 || spec.max_attempts() > 0 || found->second.lost_its_state;
  const bool is_expected = client->is_canceled ? end == CANCELLED
                           : end == SUCCEEDED   ? client->fails_at < 0
                           : end == CANCELLED   ? client->wants_cancel
                                                : may_fail;
  if (!is_expected) {
    return storm_->Violate(
        absl::StrCat(client->key, " (", client->job_id, ") ended as ", JobState_Name(end), ": ", found->second.reason));
  }
  if (end == SUCCEEDED && client->next_step != spec.steps()) {
    storm_->Violate(
        absl::StrCat(client->key, ": its watch ends before step ", client->next_step, " of ", spec.steps()));
  }
}

}  // namespace xlad::simulation
