#include "service/log/job.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "base/counted.h"
#include "base/status.h"
#include "proto/mesh.h"
#include "security/roles.h"

namespace xlad::service {
namespace {

void ApplySubmitted(const JobEvent& event, Job* job) {
  const JobSubmitted& submitted = event.submitted();
  job->id = JobId(event.job_id());
  job->client_key = submitted.client_key();
  job->owner = OwnerOfKey(submitted.client_key());
  job->submitted_by = event.actor();
  job->spec_digest = submitted.spec_digest();
  job->spec = submitted.spec();
  job->mesh = submitted.spec().mesh();
  job->devices = submitted.spec().devices();
  job->state = PENDING;
  job->submitted_unix_ns = event.unix_ns();
  job->first_step = submitted.first_step();
  job->step = submitted.first_step();
  job->resumed = {submitted.first_step(), submitted.checkpoint_uri(), submitted.checkpoint_digest(), event.unix_ns()};
}

void ApplyPlaced(const AttemptPlaced& placed, Job* job) {
  job->attempt = placed.attempt();
  job->placed = placed;
  job->placed_mesh = job->mesh;
  job->places.clear();
  job->placed_executable = job->executable_digest;
  job->placed_quick = job->is_quick;
  job->optimized_from = -1;
  job->resized = false;
  job->attempt_running = true;
  job->lost_worker.clear();
  job->ending.clear();
  job->state = STARTING;
  job->reason.clear();
  job->step = placed.first_step();
}

void ForgetDamage(Job* job) {
  job->damaged_uri.clear();
  job->damaged_attempts = 0;
  job->findings.clear();
}

void ApplyFindings(const AttemptEnded& ended, Job* job) {
  if (ended.damaged_checkpoint() != job->damaged_uri) ForgetDamage(job);
  if (ended.damaged_checkpoint().empty()) return;
  job->damaged_uri = ended.damaged_checkpoint();
  ++job->damaged_attempts;
  std::vector<DamageFinding> findings(ended.findings().begin(), ended.findings().end());
  if (findings.empty()) findings.emplace_back().set_what(ended.reason());  // The log is old.
  for (DamageFinding& finding : findings) {
    std::erase_if(job->findings, [&](const DamageFinding& other) { return other.worker() == finding.worker(); });
    job->findings.push_back(std::move(finding));
  }
}

void ApplyAttemptEnded(const AttemptEnded& ended, Job* job) {
  job->attempt_running = false;
  job->lost_worker = ended.lost_worker();
  job->reason = job->ending = ended.reason();
  job->state = PENDING;
  ApplyFindings(ended, job);
  if (!ended.state_blob().empty()) {
    job->first_step = ended.step();
    job->state_blob = ended.state_blob();
    job->failures = 0;
    return;
  }
  // A damaged checkpoint is dropped after a few such ends, so they are not counted.
  if (ended.stopped() || !job->damaged_uri.empty()) return;
  ++job->failures;
  const bool is_program_error = !ended.program_error().empty();
  job->program_error_repeated = is_program_error && ended.program_error() == job->program_error &&
                                ended.step() == job->program_error_step;
  job->program_error = ended.program_error();
  job->program_error_step = is_program_error ? ended.step() : -1;
}

void ApplyCheckpoint(const JobEvent& event, Job* job) {
  const CheckpointCommitted& committed = event.checkpoint();
  std::erase_if(job->checkpoints, [&](const Checkpoint& other) { return other.step >= committed.step(); });
  job->checkpoints.push_back({committed.step(), committed.uri(), committed.index_digest(), event.unix_ns()});
  job->failures = 0;
  job->checkpoint_error.clear();
}

std::string ErrorOf(const CheckpointFailed& failed) {
  const std::string what = failed.worker().empty() ? absl::StrCat("the index of the checkpoint of step ", failed.step())
                                                   : absl::StrCat("worker ", failed.worker(),
                                                                  "'s part of the checkpoint of step ", failed.step());
  return absl::StrCat(what, " cannot be stored: ", failed.error());
}

void ApplyCheckpointFailed(const CheckpointFailed& failed, Job* job) {
  ++job->surplus_events;
  job->checkpoint_error = ErrorOf(failed);
  job->checkpoint_error_step = failed.step();
  job->checkpoint_error_code = failed.error_code();
}

void ApplyDropped(const CheckpointsDropped& dropped, int64_t unix_ns, Job* job) {
  job->surplus_events += dropped.steps_size() + (dropped.damage().empty() ? 1 : 0);
  if (!dropped.damage().empty()) {
    job->damage = dropped.damage();
    ForgetDamage(job);
  }
  if (!dropped.resumed_uri().empty()) {
    job->first_step = dropped.first_step();
    job->resumed = {dropped.first_step(), dropped.resumed_uri(), dropped.resumed_digest(), unix_ns};
  } else if (!dropped.damaged_uri().empty()) {
    job->damaged.push_back(dropped.damaged_uri());
  }
  std::erase_if(job->checkpoints,
                [&](const Checkpoint& checkpoint) { return Contains(dropped.steps(), checkpoint.step); });
}

void ApplyResized(const JobResized& resized, Job* job) {
  if (resized.devices() > 0) {
    job->devices = resized.devices();
  } else {
    job->mesh = resized.mesh();
    job->executable_digest.clear();
    job->is_quick = false;
    job->others.clear();
    job->warnings.clear();
    job->batch_axes.clear();
  }
  job->resized = true;
  if (job->attempt_running) return;  // The running attempt is stopped first.
  job->state = PENDING;
  job->reason = resized.reason();
}

void ApplyBuilt(const JobBuilt& built, Job* job) {
  job->executable_digest = built.executable_digest();
  job->is_quick = built.quick();
  job->compiler = built.compiler();
  job->optimizing_error.clear();
  if (built.only_code()) return;
  job->others.assign(built.others().begin(), built.others().end());
  job->compile_ms = built.compile_ms();
  job->cached = built.cached();
  job->warnings.assign(built.warnings().begin(), built.warnings().end());
  job->batch_axes.assign(built.batch_axes().begin(), built.batch_axes().end());
  if (!job->attempt_running) job->state = PENDING;
}

void ApplyCodeReplaced(const CodeReplaced& replaced, Job* job) {
  if (replaced.error().empty()) {
    job->optimized_from = replaced.step();
  } else {
    job->optimizing_error = replaced.error();
  }
}

void ApplyByKind(const JobEvent& event, Job* job) {
  switch (event.event_case()) {
    case JobEvent::kSubmitted: return ApplySubmitted(event, job);
    case JobEvent::kBuilt: return ApplyBuilt(event.built(), job);
    case JobEvent::kCodeReplaced: return ApplyCodeReplaced(event.code_replaced(), job);
    case JobEvent::kPlaced: return ApplyPlaced(event.placed(), job);
    case JobEvent::kStarted:
      job->state = RUNNING;
      job->places.assign(event.started().places().begin(), event.started().places().end());
      return;
    case JobEvent::kAdopted: job->state = RUNNING; return;
    case JobEvent::kWorkerSilent: return;  // The state of a worker is not a part of the job's state.
    case JobEvent::kAttemptEnded: return ApplyAttemptEnded(event.attempt_ended(), job);
    case JobEvent::kCheckpoint: return ApplyCheckpoint(event, job);
    case JobEvent::kCheckpointFailed:
      return ApplyCheckpointFailed(event.checkpoint_failed(), job);
    case JobEvent::kDropped: return ApplyDropped(event.dropped(), event.unix_ns(), job);
    case JobEvent::kResized: return ApplyResized(event.resized(), job);
    case JobEvent::kEnded:
      job->attempt_running = false;
      job->state = event.ended().state();
      job->reason = event.ended().reason();
      job->final_state_blob = event.ended().final_state_blob();
      job->report = event.ended().report();
      return;
    case JobEvent::kTermStarted:
    case JobEvent::kDrainChanged:
    case JobEvent::kRemoved:
    case JobEvent::EVENT_NOT_SET: break;
  }
  XLAD_CHECK(false) << "event " << event.sequence() << " of job " << event.job_id() << " is not about a job";
}

// Returns "4 devices", or "2 cpu, 2 opaque" for a job that runs on several kinds.
std::string DevicesText(const Peer& peer) {
  if (peer.kinds().empty()) return DeviceCountText(DevicesOf(peer));
  return absl::StrJoin(peer.kinds(), ", ", [&](std::string* out, const PeerDevices& kind) {
    absl::StrAppend(out, kind.devices_size() / ShardsPerDevice(peer), " ", kind.device_name());
  });
}

std::string DescribePlaced(const AttemptPlaced& placed) {
  return absl::StrCat("attempt ", placed.attempt(), " from step ", placed.first_step(),
                      placed.checkpoint_uri().empty() ? "" : ", from a checkpoint,", " placed on ",
                      absl::StrJoin(placed.peers(), ", ", [](std::string* out, const Peer& peer) {
                        absl::StrAppend(out, peer.worker_id(), " (", peer.host(), ", pid ", peer.pid(), ", ",
                                        DevicesText(peer),
                                        ShardsPerDevice(peer) > 1
                                            ? absl::StrCat(" of ", ShardsPerDevice(peer), " logical shards each")
                                            : "",
                                        ")");
                      }));
}

std::string DescribeSubmitted(const JobSpec& spec) {
  if (spec.session()) {
    return absl::StrCat("opened session \"", spec.name(), "\" on ", DeviceCountText(DeviceCount(spec.mesh())));
  }
  const int64_t shards = DeviceCount(spec.mesh());
  const std::string mode = absl::StrCat(", mode ", ModeText(spec));
  const std::string steps = absl::StrCat("submitted \"", spec.name(), "\", ", Counted(spec.steps(), "step"), " on ");
  if (!IsCanonical(spec)) return absl::StrCat(steps, DeviceCountText(shards), mode);
  const std::string devices = spec.devices() > 0 ? DeviceCountText(spec.devices()) : "any number of devices";
  return absl::StrCat(steps, devices, ", ", Counted(shards, "logical shard"), mode);
}

std::string DescribeBuilt(const JobBuilt& built) {
  std::string digests = built.executable_digest().substr(0, 12);
  for (const BuiltExecutable& other : built.others()) absl::StrAppend(&digests, ", ", other.digest().substr(0, 12));
  const std::string time = absl::StrCat(static_cast<int64_t>(built.compile_ms()), " ms");
  if (built.only_code()) return absl::StrCat("optimized the code, now executable ", digests, ", in ", time);
  const std::string warnings =
      absl::StrCat(built.warnings().empty() ? "" : "; ", absl::StrJoin(built.warnings(), "; "));
  if (built.quick()) return absl::StrCat("compiled executable ", digests, " quickly in ", time, warnings);
  return absl::StrCat(built.cached() ? "found executable " : "built executable ", digests,
                      built.cached() ? " in the cache in " : " in ", time, warnings);
}

std::string DescribeDropped(const CheckpointsDropped& dropped) {
  if (!dropped.resumed_uri().empty()) {
    return absl::StrCat("checkpoint ", dropped.damaged_uri(), ", from which the job started, is damaged; it starts ",
                        "from the older one of step ", dropped.first_step(), " instead: ", dropped.damage());
  }
  const std::string what = absl::StrCat(dropped.steps_size() == 1 ? "checkpoint of step " : "checkpoints of steps ",
                                        absl::StrJoin(dropped.steps(), ", "), " dropped");
  if (dropped.damage().empty()) return what;
  return absl::StrCat(what, " because it is damaged; its files are kept: ", dropped.damage());
}

std::string DescribeCodeReplaced(const CodeReplaced& replaced) {
  if (replaced.error().empty()) {
    return absl::StrCat("training started on quickly compiled code; optimized code from step ", replaced.step());
  }
  return absl::StrCat("training continues on quickly compiled code; it could not be optimized: ", replaced.error());
}

// Returns " by " and the actor of the event: " by alice (token 1a2b3c4d)". Returns `otherwise` if the event has none.
std::string ByActor(const JobEvent& event, absl::string_view otherwise = "") {
  return event.actor().empty() ? std::string(otherwise) : absl::StrCat(" by ", event.actor());
}

}  // namespace

bool Job::HasCheckpoint(absl::string_view uri) const {
  return std::any_of(checkpoints.begin(), checkpoints.end(),
                     [&](const Checkpoint& checkpoint) { return checkpoint.uri == uri; });
}

std::string OwnerOfKey(absl::string_view key) {
  const size_t end = key.find('/');
  if (!absl::StartsWith(key, "@") || end == absl::string_view::npos) return "";
  const absl::string_view user = key.substr(1, end - 1);
  return security::IsUserName(user) ? std::string(user) : "";
}

std::string OwnerText(const Job& job) {
  return job.owner.empty() ? job.submitted_by.substr(0, job.submitted_by.find(" (")) : job.owner;
}

StartPoint StartOf(const Job& job) {
  const Checkpoint* newest = job.checkpoints.empty() ? nullptr : &job.checkpoints.back();
  if (newest != nullptr && newest->step >= job.first_step) return {newest->step, "", newest->uri, newest->digest};
  if (!job.state_blob.empty()) return {job.first_step, job.state_blob, "", ""};
  return {job.first_step, job.spec.state_blob(), job.resumed.uri, job.resumed.digest};
}

void Apply(const JobEvent& event, Job* job) {
  const JobState before = job->state;
  ApplyByKind(event, job);
  if (event.has_submitted() || job->state != before) job->since_unix_ns = event.unix_ns();
}

std::string Describe(const JobEvent& event) {
  switch (event.event_case()) {
    case JobEvent::kSubmitted: return absl::StrCat(DescribeSubmitted(event.submitted().spec()), ByActor(event));
    case JobEvent::kBuilt: return DescribeBuilt(event.built());
    case JobEvent::kCodeReplaced: return DescribeCodeReplaced(event.code_replaced());
    case JobEvent::kPlaced: return DescribePlaced(event.placed());
    case JobEvent::kStarted: return absl::StrCat("attempt ", event.started().attempt(), " running");
    case JobEvent::kAdopted:
      return absl::StrCat("attempt ", event.adopted().attempt(), " adopted at step ", event.adopted().step(),
                          " after a coordinator restart");
    case JobEvent::kAttemptEnded:
      return absl::StrCat("attempt ", event.attempt_ended().attempt(),
                          event.attempt_ended().stopped() ? " stopped: " : " ended: ", event.attempt_ended().reason());
    case JobEvent::kCheckpoint:
      return absl::StrCat("checkpoint of step ", event.checkpoint().step(), " committed: ", event.checkpoint().uri());
    case JobEvent::kCheckpointFailed:
      return ErrorOf(event.checkpoint_failed());
    case JobEvent::kWorkerSilent: return event.worker_silent().reason();
    case JobEvent::kDropped: return DescribeDropped(event.dropped());
    case JobEvent::kResized:
      return absl::StrCat(
          "resized to ",
          event.resized().devices() > 0 ? DeviceCountText(event.resized().devices()) : MeshText(event.resized().mesh()),
          ": ", event.resized().reason());
    case JobEvent::kEnded:
      return absl::StrCat(JobState_Name(event.ended().state()), event.ended().reason().empty() ? "" : ": ",
                          event.ended().reason());
    case JobEvent::kTermStarted:
      return absl::StrCat("coordinator term ", event.term_started().term(), ": ", event.term_started().reason());
    case JobEvent::kDrainChanged:
      return absl::StrCat("worker ", event.drain_changed().worker_id(),
                          event.drain_changed().drain() ? " drained" : " undrained",
                          ByActor(event, " by an operator"));
    case JobEvent::kRemoved:
      if (event.removed().job_ids().empty()) {
        return absl::StrCat("later attempts have generations above ", event.removed().generation());
      }
      return absl::StrCat("removed ended jobs: ", absl::StrJoin(event.removed().job_ids(), ", "));
    case JobEvent::EVENT_NOT_SET: break;
  }
  return "unknown event";
}

JobLogResponse::Event ForClients(const JobEvent& event) {
  JobLogResponse::Event out;
  out.set_sequence(event.sequence());
  out.set_unix_ns(event.unix_ns());
  out.set_text(Describe(event));
  out.set_term(event.term());
  out.set_actor(event.actor());
  out.set_step(-1);
  const google::protobuf::FieldDescriptor* field =
      event.GetReflection()->GetOneofFieldDescriptor(event, event.GetDescriptor()->FindOneofByName("event"));
  if (field != nullptr) out.set_kind(field->name());
  switch (event.event_case()) {
    case JobEvent::kPlaced:
      out.set_attempt(event.placed().attempt());
      out.set_step(event.placed().first_step());
      break;
    case JobEvent::kStarted: out.set_attempt(event.started().attempt()); break;
    case JobEvent::kAdopted:
      out.set_attempt(event.adopted().attempt());
      out.set_step(event.adopted().step());
      break;
    case JobEvent::kAttemptEnded:
      out.set_attempt(event.attempt_ended().attempt());
      out.set_step(event.attempt_ended().step());
      out.set_worker(event.attempt_ended().lost_worker());
      break;
    case JobEvent::kCodeReplaced:
      out.set_attempt(event.code_replaced().attempt());
      if (event.code_replaced().error().empty()) out.set_step(event.code_replaced().step());
      break;
    case JobEvent::kCheckpoint:
      out.set_attempt(event.checkpoint().attempt());
      out.set_step(event.checkpoint().step());
      break;
    case JobEvent::kCheckpointFailed:
      out.set_attempt(event.checkpoint_failed().attempt());
      out.set_step(event.checkpoint_failed().step());
      out.set_worker(event.checkpoint_failed().worker());
      break;
    case JobEvent::kWorkerSilent:
      out.set_attempt(event.worker_silent().attempt());
      out.set_step(event.worker_silent().step());
      out.set_worker(event.worker_silent().worker());
      break;
    default: break;
  }
  return out;
}

namespace {

// Calls `visit(result, value)` for each loss and metric of the step, until it returns false.
template <typename Visit>
void VisitValues(const StepMetrics& metrics, const JobSpec& spec, const Visit& visit) {
  int column = 0;
  for (const JobSpec::Result& result : spec.results()) {
    if (result.kind() != JobSpec::Result::LOSS && result.kind() != JobSpec::Result::METRIC) continue;
    if (column >= metrics.values_size() || !visit(result, metrics.values(column))) return;
    ++column;
  }
}

}  // namespace

void NoteLoss(const StepMetrics& metrics, Job* job) {
  VisitValues(metrics, job->spec, [&](const JobSpec::Result& result, float value) {
    if (result.kind() != JobSpec::Result::LOSS) return true;
    job->has_loss = true;
    job->loss = value;
    return false;
  });
}

std::string NotFinite(const StepMetrics& metrics, const JobSpec& spec) {
  std::string found;
  VisitValues(metrics, spec, [&](const JobSpec::Result& result, float value) {
    if (!std::isfinite(value)) found = absl::StrCat(result.name(), " = ", value);
    return found.empty();
  });
  return found;
}

int64_t DeviceCount(const Mesh& mesh) {
  int64_t devices = 1;
  for (const MeshAxis& axis : mesh) {
    if (axis.size() < 1 || axis.size() > kMaxDevices / devices) return -1;
    devices *= axis.size();
  }
  return devices;
}

int64_t LargestDivisor(const Mesh& mesh, int64_t most) {
  const int64_t shards = std::max<int64_t>(1, DeviceCount(mesh));
  int64_t devices = std::clamp<int64_t>(most, 1, shards);
  while (shards % devices != 0) --devices;
  return devices;
}

int64_t WantedDevices(const Job& job, int64_t all) {
  if (!IsCanonical(job.spec)) return DeviceCount(job.mesh);
  return job.devices > 0 ? job.devices : LargestDivisor(job.mesh, all);
}

std::string ModeText(const JobSpec& spec) {
  switch (spec.compile().reduction_mode()) {
    case CANONICAL: return "canonical";
    case FAST: return "fast";
    default: return "run-to-run";
  }
}

std::string CodeText(const Job& job) {
  if (!job.RunsQuickCode()) return "";
  if (!job.optimizing_error.empty()) {
    return absl::StrCat("runs quickly compiled code, which could not be optimized: ", job.optimizing_error);
  }
  return job.is_quick ? "runs quickly compiled code until the optimized code is compiled"
                      : "runs quickly compiled code until the workers have loaded the optimized code";
}

}  // namespace xlad::service
