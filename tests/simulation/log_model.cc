#include "tests/simulation/log_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "base/hash.h"

namespace xlad::simulation {
namespace {

class ObservedLog final : public service::JobLog {
 public:
  ObservedLog(std::unique_ptr<service::JobLog> log, LogModel* model) : log_(std::move(log)), model_(model) {}

  absl::Status Append(service::LogBatch* batch) override {
    XLAD_RETURN_IF_ERROR(log_->Append(batch));
    for (const JobEvent& event : batch->events) model_->Apply(event);
    for (const service::LogBatch::Metrics& metrics : batch->metrics) model_->ApplyMetrics(metrics);
    return absl::OkStatus();
  }
  absl::Status ReadEvents(const std::function<absl::Status(const JobEvent&)>& visit) override {
    model_->BeginReading();
    XLAD_RETURN_IF_ERROR(log_->ReadEvents([&](const JobEvent& event) {
      model_->Apply(event);
      return visit(event);
    }));
    model_->EndReading();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<JobEvent>> ReadEventsOf(const service::JobId& job, int64_t after_sequence,
                                                     int64_t limit) override {
    return log_->ReadEventsOf(job, after_sequence, limit);
  }
  absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const service::JobId& job, int64_t from_step,
                                                       int64_t limit) override {
    return log_->ReadMetrics(job, from_step, limit);
  }
  absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const service::JobId& job, int64_t attempt) override {
    return log_->LastMetrics(job, attempt);
  }
  absl::Status Compact(const service::LogCompaction& compaction) override { return log_->Compact(compaction); }
  absl::Status BackUp(const std::string& path) override { return log_->BackUp(path); }

 private:
  const std::unique_ptr<service::JobLog> log_;
  LogModel* const model_;
};

// Returns the name of a record's kind. Ends of jobs and attempts and replacements of code are distinguished by their
// results, and drops by their reason.
std::string KindOf(const JobEvent& event) {
  const auto* kind =
      event.GetReflection()->GetOneofFieldDescriptor(event, event.GetDescriptor()->FindOneofByName("event"));
  if (kind == nullptr) return "none";
  if (event.has_ended()) return JobState_Name(event.ended().state());
  if (event.has_code_replaced() && !event.code_replaced().error().empty()) return "not_optimized";
  if (event.has_dropped() && !event.dropped().damage().empty()) return "damaged";
  const bool is_cut = absl::StrContains(event.attempt_ended().reason(), "the link between them is down");
  if (event.has_attempt_ended() && is_cut) return "cut_link";
  return event.has_attempt_ended() && event.attempt_ended().stopped() ? "stopped" : kind->name();
}

int64_t KeptBy(const JobSpec& spec) {
  constexpr int64_t kKeptByDefault = 2;
  return spec.checkpoint().keep() > 0 ? spec.checkpoint().keep() : kKeptByDefault;
}

// Whether a client asked for the new mesh, or the job has waited for its lost worker, which may return.
bool MayResize(const JobEvent& event, const LogModel::Job& job) {
  constexpr int64_t kMinWaitNs = 2900 * kNsPerMs;
  return absl::StrContains(event.resized().reason(), "asked for it") ||
         (!job.lost_worker.empty() && event.unix_ns() - job.ended_unix_ns >= kMinWaitNs);
}

}  // namespace

uint64_t ContentsAt(const std::string& key, int64_t step) {
  return Hash64(absl::StrCat(key, " before step ", step), 0);
}

float LossOf(uint64_t contents) { return static_cast<float>(contents % 1000003); }

std::shared_ptr<service::JobLog> Observe(std::unique_ptr<service::JobLog> log, LogModel* model) {
  return std::make_shared<ObservedLog>(std::move(log), model);
}

void LogModel::BeginReading() {
  jobs_.clear();
  drained_.clear();
  ids_.clear();
  term_ = generation_ = sequence_ = attempts_ = checkpoints_ = 0;
  records_.clear();
  reading_ = true;
}

void LogModel::EndReading() {
  reading_ = false;
  if (sequence_ < durable_sequence_) {
    Violate(absl::StrCat("the log ends at record ", sequence_, ", but record ", durable_sequence_, " was durable"));
  }
  for (const auto& [key, id] : acknowledged_) {
    const auto found = ids_.find(key);
    if (found == ids_.end()) Violate(absl::StrCat("acknowledged job ", id, " (", key, ") is lost"));
    if (found != ids_.end() && found->second != id) {
      Violate(absl::StrCat("job ", key, " was acknowledged as ", id, " and is now ", found->second));
    }
  }
}

void LogModel::Acknowledge(const std::string& key, const std::string& job_id) {
  const auto [known, is_new] = acknowledged_.emplace(key, job_id);
  if (!is_new && known->second != job_id) {
    Violate(absl::StrCat("job ", key, " was acknowledged as ", known->second, " and as ", job_id));
  }
  const auto found = ids_.find(key);
  if (found == ids_.end() || found->second != job_id) {
    Violate(absl::StrCat("job ", key, " was acknowledged as ", job_id, " before it was durable"));
  }
}

void LogModel::Expect(bool holds, const JobEvent& event, const std::string& what) {
  if (!holds) Violate(absl::StrCat("record ", event.sequence(), " of ", event.job_id(), ": ", what));
}

void LogModel::CheckRemoved(const std::string& uri) {
  for (const auto& [id, job] : jobs_) {
    const bool is_kept = std::any_of(job.checkpoints.begin(), job.checkpoints.end(),
                                     [&](const auto& checkpoint) { return checkpoint.second == uri; });
    if (is_kept) Violate(absl::StrCat("checkpoint ", uri, " is removed, although ", id, " has it"));
    const bool is_read = job.running && !job.started && job.placed.checkpoint_uri() == uri;
    if (is_read) Violate(absl::StrCat("checkpoint ", uri, " is removed while ", id, " starts from it"));
  }
}

void LogModel::Apply(const JobEvent& event) {
  ++records_[KindOf(event)];
  Expect(event.sequence() > sequence_, event, absl::StrCat("found after record ", sequence_));
  sequence_ = event.sequence();
  if (!reading_) durable_sequence_ = sequence_;
  if (event.has_term_started()) {
    Expect(event.term_started().term() > term_, event,
           absl::StrCat("term ", event.term_started().term(), " after ", term_));
    term_ = event.term_started().term();
  }
  Expect(event.term() == term_, event, absl::StrCat("written in term ", event.term(), ", expected ", term_));
  if (event.has_drain_changed()) {
    const WorkerDrainChanged& change = event.drain_changed();
    const bool changes =
        change.drain() ? drained_.insert(change.worker_id()).second : drained_.erase(change.worker_id()) == 1;
    Expect(changes, event, "a drain that changes nothing");
  }
  if (!event.job_id().empty()) ApplyToJob(event);
}

void LogModel::ApplyToJob(const JobEvent& event) {
  if (event.has_submitted()) {
    const std::string& key = event.submitted().client_key();
    Expect(!jobs_.contains(event.job_id()), event, "a second submission under this id");
    Expect(ids_.emplace(key, event.job_id()).second, event, absl::StrCat("a second job for the key ", key));
    jobs_[event.job_id()].key = key;
    jobs_[event.job_id()].spec = event.submitted().spec();
    jobs_[event.job_id()].mesh = event.submitted().spec().mesh();
    return;
  }
  const auto found = jobs_.find(event.job_id());
  if (found == jobs_.end()) return Expect(false, event, "an unknown job");
  Job* job = &found->second;
  Expect(!job->ended || event.has_dropped(), event, "the job has ended already");
  switch (event.event_case()) {
    case JobEvent::kPlaced:
      return OnPlaced(event, job);
    case JobEvent::kStarted:
      Expect(job->running && event.started().attempt() == job->attempt, event, "starts an attempt that is not current");
      Expect(!job->started, event, "a second start");
      job->started = true;
      return;
    case JobEvent::kAdopted:
      return Expect(job->running && event.adopted().attempt() == job->attempt, event,
                    "adopts an attempt that is not current");
    case JobEvent::kWorkerSilent:
      return Expect(job->running && event.worker_silent().attempt() == job->attempt, event,
                    "a silent worker of an attempt that is not current");
    case JobEvent::kAttemptEnded:
      return OnAttemptEnded(event, job);
    case JobEvent::kResized:
      Expect(service::DeviceCount(event.resized().mesh()) >= 1, event, "resized to no devices");
      Expect(MayResize(event, *job), event, "shrinks, although its worker may return");
      job->mesh = event.resized().mesh();
      job->resized = true;
      return;
    case JobEvent::kCheckpoint:
      return OnCheckpoint(event, job);
    case JobEvent::kDropped:
      return OnDropped(event, job);
    case JobEvent::kCheckpointFailed:
      Expect(job->running && event.checkpoint_failed().attempt() == job->attempt, event,
             "a state of an attempt that is not current");
      Expect(event.checkpoint_failed().step() != job->unstored_step, event, "the same failure is recorded again");
      job->unstored_step = event.checkpoint_failed().step();
      return;
    case JobEvent::kEnded:
      return OnEnded(event, job);
    default:
      return;
  }
}

void LogModel::OnPlaced(const JobEvent& event, Job* job) {
  const AttemptPlaced& placed = event.placed();
  ++attempts_;
  Expect(!job->running, event, "a second current attempt");
  Expect(placed.attempt() == job->attempt + 1, event, absl::StrCat("attempt ", placed.attempt()));
  Expect(placed.generation() > generation_, event, absl::StrCat("generation ", placed.generation()));
  CheckPolicy(event, *job);
  // A checkpoint in which damage was found is read again only after a pause.
  constexpr int64_t kMinPauseNs = 900 * kNsPerMs;
  Expect(job->damaged_unix_ns == 0 || event.unix_ns() - job->damaged_unix_ns >= kMinPauseNs, event,
         "no pause after a damaged checkpoint");
  generation_ = placed.generation();
  job->attempt = placed.attempt();
  job->generation = placed.generation();
  job->running = true;
  job->started = false;
  job->placed = placed;
  job->resized = false;
  CheckDevices(event, *job);
  CheckHosts(event);
  Expect(placed.first_step() == std::max<int64_t>(0, job->newest_step), event,
         absl::StrCat("starts from step ", placed.first_step(), ", the newest checkpoint is of ", job->newest_step));
  if (placed.first_step() == 0) return;
  const auto index = indexes_->find(placed.checkpoint_uri());
  if (index == indexes_->end()) return Expect(false, event, "starts from an unknown checkpoint");
  Expect(index->second.contents == ContentsAt(job->key, placed.first_step()), event, "starts from another state");
}

// Checks that another attempt is allowed, and that it runs on workers that the job's --on-loss policy allows.
void LogModel::CheckPolicy(const JobEvent& event, const Job& job) {
  const int64_t limit = job.spec.max_attempts();
  Expect((limit == 0 || job.failures < limit) && !job.repeated, event,
         absl::StrCat("another attempt after ", job.failures, " failures"));
  if (job.spec.on_loss() != JobSpec::WAIT || job.lost_worker.empty() || job.resized) return;
  for (const Peer& peer : event.placed().peers()) {
    const bool had_it = std::any_of(job.placed.peers().begin(), job.placed.peers().end(),
                                    [&](const Peer& other) { return other.worker_id() == peer.worker_id(); });
    Expect(had_it, event, absl::StrCat("does not wait for its workers, but takes ", peer.worker_id()));
  }
}

// Checks that the attempt has the devices of its mesh, that its workers are not drained, and that attempts use no more
// devices of these workers than exist.
void LogModel::CheckDevices(const JobEvent& event, const Job& job) {
  std::map<std::pair<std::string, uint64_t>, int64_t> used;  // The number of used devices, by worker and incarnation.
  std::set<std::pair<std::string, uint64_t>> workers;        // The workers of the job.
  for (const Peer& peer : job.placed.peers()) workers.emplace(peer.worker_id(), peer.incarnation());
  for (const auto& [id, other] : jobs_) {
    if (!other.running) continue;
    const bool may_share = share_workers_ || service::OwnerOfKey(other.key) == service::OwnerOfKey(job.key);
    for (const Peer& peer : other.placed.peers()) {
      used[{peer.worker_id(), peer.incarnation()}] += peer.devices_size();
      Expect(may_share || !workers.contains({peer.worker_id(), peer.incarnation()}), event,
             absl::StrCat("placed on worker ", peer.worker_id(), ", which runs ", other.key));
    }
  }
  std::set<int32_t> devices;
  for (const Peer& peer : job.placed.peers()) {
    devices.insert(peer.devices().begin(), peer.devices().end());
    const int64_t of_worker = used[{peer.worker_id(), peer.incarnation()}];
    Expect(!drained_.contains(peer.worker_id()), event, absl::StrCat("placed on drained worker ", peer.worker_id()));
    Expect(of_worker <= devices_each_, event,
           absl::StrCat(of_worker, " devices of worker ", peer.worker_id(), " are used"));
  }
  const int64_t wanted = service::DeviceCount(job.mesh);
  Expect(std::ssize(devices) == wanted && *devices.begin() == 0 && *devices.rbegin() == wanted - 1, event,
         absl::StrCat("placed on ", devices.size(), " devices, the mesh has ", wanted));
}

// Checks that the positions of the workers of one host are consecutive.
void LogModel::CheckHosts(const JobEvent& event) {
  std::map<int32_t, std::string> hosts;  // By position.
  for (const Peer& peer : event.placed().peers()) {
    for (const int32_t device : peer.devices()) hosts[device] = peer.host();
  }
  std::set<std::string> before;
  std::string last;
  for (const auto& [device, host] : hosts) {
    if (host == std::exchange(last, host)) continue;
    Expect(before.insert(host).second, event, absl::StrCat("the positions of ", host, " are not consecutive"));
  }
}

void LogModel::OnDamageFound(const JobEvent& event, Job* job) {
  const AttemptEnded& ended = event.attempt_ended();
  const bool continues = ended.damaged_checkpoint() == job->damaged_uri;
  if (!continues) job->damaged_hosts.clear();
  job->damaged_attempts = continues ? job->damaged_attempts + 1 : 1;
  job->damaged_uri = ended.damaged_checkpoint();
  Expect(ended.damaged_checkpoint() == job->placed.checkpoint_uri(), event, "damage in another checkpoint");
  Expect(!ended.findings().empty(), event, "damage without evidence");
  for (const DamageFinding& finding : ended.findings()) {
    const std::string found = absl::StrCat("state ", ended.damaged_checkpoint(), ": found checksum");
    const bool has_all =
        absl::StrContains(finding.what(), "worker " + finding.worker()) && absl::StrContains(finding.what(), found);
    Expect(has_all, event, absl::StrCat("found as evidence: ", finding.what()));
    for (const Peer& peer : job->placed.peers()) {
      if (peer.worker_id() == finding.worker()) job->damaged_hosts.insert(peer.host());
    }
  }
}

// Whether the process with this id is still the one that the attempt had.
bool LogModel::IsProcessOf(const AttemptPlaced& placed, const std::string& worker) const {
  return std::any_of(placed.peers().begin(), placed.peers().end(), [&](const Peer& peer) {
    return peer.worker_id() == worker && peer.incarnation() == workers_.incarnation(worker);
  });
}

void LogModel::OnAttemptEnded(const JobEvent& event, Job* job) {
  const AttemptEnded& ended = event.attempt_ended();
  Expect(job->running && ended.attempt() == job->attempt, event, "ends an attempt that is not current");
  job->running = false;
  job->ended_unix_ns = event.unix_ns();
  job->lost_worker = ended.lost_worker();
  const bool was_silent = absl::StrContains(ended.reason(), "no heartbeat") ||
                          absl::StrContains(ended.reason(), "not been connected") ||
                          absl::StrContains(ended.reason(), "did not reconnect");
  if (!reading_ && was_silent && !ended.lost_worker().empty()) {
    Expect(!workers_.is_well(ended.lost_worker()), event,
           absl::StrCat("worker ", ended.lost_worker(), " is well, not lost"));
  }
  Expect(!absl::StrContains(ended.reason(), "no space"), event, "a full disk ends an attempt");
  Expect(!absl::StrContains(ended.reason(), "no shards"), event, "workers end their tasks only after the last state");
  if (!reading_ && absl::StrContains(ended.reason(), "its process restarted")) {
    Expect(!IsProcessOf(job->placed, ended.lost_worker()), event,
           absl::StrCat("worker ", ended.lost_worker(), " did not restart"));
  }
  const bool is_error = ended.program_error().empty() || absl::StrContains(ended.program_error(), kProgramError);
  Expect(is_error, event, absl::StrCat("found as error of the program: ", ended.program_error()));
  job->damaged_unix_ns = ended.damaged_checkpoint().empty() ? 0 : event.unix_ns();
  if (!ended.damaged_checkpoint().empty()) {
    OnDamageFound(event, job);
  } else {
    job->damaged_uri.clear();
  }
  if (ended.stopped() || !ended.damaged_checkpoint().empty()) return;
  ++job->failures;
  const std::string error =
      ended.program_error().empty() ? "" : absl::StrCat(ended.program_error(), " at step ", ended.step());
  job->repeated = !error.empty() && error == job->program_error;
  job->program_error = error;
}

void LogModel::OnCheckpoint(const JobEvent& event, Job* job) {
  const CheckpointCommitted& committed = event.checkpoint();
  ++checkpoints_;
  Expect(job->running && job->started, event, "a checkpoint without a running attempt");
  Expect(committed.attempt() == job->attempt && committed.generation() == job->generation, event,
         "a checkpoint of a fenced attempt");
  Expect(committed.step() > job->newest_step, event, absl::StrCat("step ", committed.step(), " is not newer"));
  const auto index = indexes_->find(committed.uri());
  if (index == indexes_->end()) return Expect(false, event, "a checkpoint whose index is not stored");
  const StoredIndex& stored = index->second;
  Expect(stored.job_id == event.job_id() && stored.attempt == job->attempt && stored.generation == job->generation &&
             stored.step == committed.step(),
         event, "the index is of another job, attempt, generation or step");
  Expect(stored.contents == ContentsAt(job->key, committed.step()), event, "the state is not that of the step");
  Expect(std::ssize(job->checkpoints) <= KeptBy(job->spec), event,
         absl::StrCat("the job still has ", job->checkpoints.size(), " older checkpoints"));
  job->failures = 0;
  job->unstored_step = -1;
  job->newest_step = committed.step();
  job->checkpoints[committed.step()] = committed.uri();
}

bool LogModel::IsDamaged(const std::string& uri) const {
  const auto index = indexes_->find(uri);
  return index != indexes_->end() && index->second.is_damaged;
}

// Checks that a job keeps its newest checkpoint unless it is damaged.
void LogModel::OnDropped(const JobEvent& event, Job* job) {
  const CheckpointsDropped& dropped = event.dropped();
  for (const int64_t step : dropped.steps()) {
    const auto found = job->checkpoints.find(step);
    if (found == job->checkpoints.end()) {
      Expect(false, event, absl::StrCat("drops an unknown checkpoint of step ", step));
      continue;
    }
    const bool may_drop = step != job->newest_step || job->ended || IsDamaged(found->second);
    Expect(may_drop, event,
           absl::StrCat("drops the newest checkpoint", dropped.damage().empty() ? "" : ", which is intact"));
    Expect(dropped.damage().empty() || dropped.damaged_uri() == found->second, event, "drops another checkpoint");
    job->checkpoints.erase(found);
  }
  if (dropped.damage().empty()) {
    return Expect(std::ssize(job->checkpoints) == KeptBy(job->spec), event,
                  absl::StrCat("the job keeps ", job->checkpoints.size(), " checkpoints"));
  }
  Expect(!job->checkpoints.empty(), event, "drops the only checkpoint");
  constexpr int64_t kFindingsOfOneHost = 5;
  Expect(job->damaged_attempts >= (job->damaged_hosts.size() < 2 ? kFindingsOfOneHost : 2), event,
         absl::StrCat("drops a checkpoint after ", job->damaged_attempts, " attempts that found damage, on ",
                      job->damaged_hosts.size(), " hosts"));
  job->damaged_uri.clear();
  job->damaged_unix_ns = 0;
  job->newest_step = job->checkpoints.empty() ? -1 : job->checkpoints.rbegin()->first;
}

void LogModel::OnEnded(const JobEvent& event, Job* job) {
  const bool was_running = job->running;
  job->ended = true;
  job->running = false;
  job->end_state = event.ended().state();
  job->reason = event.ended().reason();
  if (event.ended().state() == FAILED) {
    const int64_t limit = job->spec.max_attempts();
    job->lost_its_state = absl::StrContains(event.ended().reason(), "it is the job's last checkpoint") &&
                          job->checkpoints.size() == 1 && IsDamaged(job->checkpoints.begin()->second);
    Expect((limit > 0 && job->failures >= limit) || job->repeated || job->lost_its_state, event,
           absl::StrCat("a failure after ", job->failures, " attempts without a checkpoint: ", job->reason));
  }
  if (event.ended().state() != SUCCEEDED) return;
  Expect(was_running && job->started, event, "a success without a started attempt");
  Expect(!job->spec.keep_final_state() || job->newest_step == job->spec.steps(), event,
         "a success without its final checkpoint");
}

void LogModel::ApplyMetrics(const service::LogBatch::Metrics& metrics) {
  const auto found = jobs_.find(metrics.job.str());
  if (found == jobs_.end()) return Violate(absl::StrCat("metrics of unknown job ", metrics.job.str()));
  for (const StepMetrics& row : metrics.rows) {
    if (row.attempt() < 1 || row.attempt() > found->second.attempt) {
      Violate(absl::StrCat(metrics.job.str(), ": step ", row.step(), " is recorded for attempt ", row.attempt()));
    }
    if (row.values_size() != 1 || row.values(0) != LossOf(ContentsAt(found->second.key, row.step()))) {
      Violate(absl::StrCat(metrics.job.str(), ": the loss of step ", row.step(), " is of another state"));
    }
  }
}

}  // namespace xlad::simulation
