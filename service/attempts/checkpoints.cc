#include "service/attempts/checkpoints.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "service/attempts/ending.h"
#include "service/attempts/shared_folder.h"
#include "service/state/messages.h"

namespace xlad::service {
namespace {

constexpr int32_t kKeptByDefault = 2;

int64_t EveryMs(const CoordinatorOptions& options, const JobSpec& spec) {
  return spec.has_checkpoint() ? spec.checkpoint().every_ms() : options.checkpoint_ms;
}

bool IsOnCoordinator(const JobSpec& spec) {
  const std::string& uri = spec.checkpoint().uri();
  return uri.empty() || uri == "xlad:";
}

// Removes a checkpoint that was stored after its job had ended. If its folder has not answered for long, the job may
// have been removed as well.
void RemoveLateCheckpoint(Context& context, const JobId& id, const absl::StatusOr<Checkpoint>& stored) {
  const bool has_no_job = context.jobs.Find(id) == nullptr && stored.ok() && !context.jobs.IsResumed(stored->uri);
  if (has_no_job) context.effects.actions.push_back(DropCheckpoint{stored->uri});
  RemoveFilesIfEnded(context, id);
}

std::string PlaceText(const JobSpec& spec) {
  return IsOnCoordinator(spec) ? "xlad: (the store of the coordinator)" : spec.checkpoint().uri();
}

}  // namespace

bool IsRefusal(int32_t code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return true;
    default:
      return false;
  }
}

int64_t StepMargin(double step_ms) {
  if (!(step_ms > 0)) return 16;  // The negated comparison is also true for NaN.
  return 2 + static_cast<int64_t>(std::ceil(std::min(500.0 / step_ms, 1e6)));
}

int64_t NextCommonStep(const Job& job, const Attempt& attempt) {
  int64_t furthest = job.step;
  for (const auto& [worker, step] : attempt.progress) furthest = std::max(furthest, step);
  // Workers that wait for the slowest one (pace.h) are as fast as this one.
  const double step_ms = attempt.pace.pauses ? 1 / attempt.pace.steps_per_ms : attempt.step_ms;
  return std::min(furthest + StepMargin(step_ms), job.spec.steps());
}

std::string Checkpoints::NewestText(const Job& job) {
  if (job.checkpoints.empty()) return "there is no checkpoint yet";
  return absl::StrCat("the newest checkpoint is of step ", NewestStep(job));
}

int64_t Checkpoints::NewestStep(const Job& job) { return job.checkpoints.empty() ? -1 : job.checkpoints.back().step; }

void Checkpoints::OnTick(Job* job) {
  if (EndIfRefused(job)) return;
  Attempt& attempt = context_.attempts.at(job->id);
  if (!attempt.shards.empty()) StoreIfComplete(job, attempt.shards.rbegin()->first);
  const int64_t every_ms = EveryMs(context_.options, job->spec);
  if (every_ms <= 0 || job->spec.session() || job->state != RUNNING || attempt.stop_at >= 0) return;
  // A spec may say 2^53 ms, which does not fit into 64 bits as nanoseconds.
  if ((context_.now_ns - attempt.last_checkpoint_ns) / kNsPerMs < every_ms) return;
  Request(job);
}

void Checkpoints::Request(Job* job) {
  Attempt& attempt = context_.attempts.at(job->id);
  const int64_t step = NextCommonStep(*job, attempt);
  attempt.last_checkpoint_ns = context_.now_ns;
  if (step >= job->spec.steps()) return;  // The final state will be saved soon.
  attempt.requested_step = step;
  CoordinatorMessage message;
  SetAttempt(job->current(), message.mutable_checkpoint_at());
  message.mutable_checkpoint_at()->set_step(step);
  context_.SendToAll(*job, message);
}

void Checkpoints::RepeatRequest(const WorkerId& worker, const Job& job, int64_t step) {
  const Attempt& attempt = context_.attempts.at(job.id);
  // A worker that has finished the step has saved the state before it, or no longer can.
  if (attempt.requested_step <= step || attempt.stop_at >= 0) return;
  CoordinatorMessage message;
  SetAttempt(job.current(), message.mutable_checkpoint_at());
  message.mutable_checkpoint_at()->set_step(attempt.requested_step);
  context_.Send(worker, std::move(message));
}

void Checkpoints::OnAdopted(const Job& job) {
  const int64_t committed_ns = job.checkpoints.empty() ? 0 : job.checkpoints.back().unix_ns;
  const int64_t since_ns = std::max(committed_ns, job.since_unix_ns);  // The job runs since since_unix_ns.
  const int64_t age_ns = std::max<int64_t>(0, context_.wall_ns - since_ns);
  context_.attempts.at(job.id).last_checkpoint_ns = context_.now_ns - age_ns;
}

void Checkpoints::OnAnswer(const WorkerId& worker, const CheckpointAtAnswer& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) return;
  Attempt& attempt = context_.attempts.at(job->id);
  int64_t& progress = attempt.progress[worker.str()];
  progress = std::max(progress, message.current());
  if (!message.accepted() && message.step() == attempt.requested_step && attempt.stop_at < 0) Request(job);
}

void Checkpoints::OnShardWritten(const WorkerId& worker, const ShardWritten& message) {
  Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr) return context_.Send(worker, AbortMessage(AttemptOf(message), "this attempt has ended"));
  if (!context_.IsOn(worker, *job)) return;
  CoordinatorMessage committed;
  SetAttempt(job->current(), committed.mutable_committed());
  committed.mutable_committed()->set_step(message.step());
  // Shards of a step that is not newer than the newest checkpoint are not needed.
  if (message.step() <= NewestStep(*job)) return context_.Send(worker, std::move(committed));
  Attempt& attempt = context_.attempts.at(job->id);
  attempt.shards[message.step()][worker.str()] = message.shard();
  attempt.unstored.erase(worker.str());
  StoreIfComplete(job, message.step());
}

void Checkpoints::OnShardFailed(const WorkerId& worker, const ShardFailed& message) {
  const Job* job = context_.FindRunning(message.job_id(), message.attempt(), message.generation());
  if (job == nullptr || !context_.IsOn(worker, *job)) return;
  RecordFailure(job, {message.step(), worker.str(), message.error(), message.error_code(), message.must_be_stored()});
}

// Records only the first of several failures in a row, because all of them may have the same cause. The first failure
// of a state with which the attempt ends is always recorded.
void Checkpoints::RecordFailure(const Job* job, const Failure& failure) {
  // Workers of earlier versions do not say that a state must be stored.
  const bool is_last = job->spec.keep_final_state() && failure.step == job->spec.steps();
  const bool is_end = is_last || failure.must_be_stored;
  if (is_end) {
    Attempt::Unstored& unstored = context_.attempts.at(job->id).unstored[failure.worker];
    unstored.step = failure.step;
    unstored.error = Shortened(failure.error);
    unstored.code = failure.code;
    if (!IsRefusal(failure.code)) {
      unstored.refused_ns = -1;
    } else if (unstored.refused_ns < 0) {
      unstored.refused_ns = context_.now_ns;
    } else if (context_.now_ns - unstored.refused_ns >= context_.options.refused_state_ms * kNsPerMs) {
      unstored.is_permanent = true;
    }
  }
  const bool is_new = job->checkpoint_error.empty() || (is_end && job->checkpoint_error_step != failure.step);
  if (!is_new) return;
  JobEvent event = context_.NewEvent(job->id);
  CheckpointFailed* failed = event.mutable_checkpoint_failed();
  failed->set_attempt(job->attempt);
  failed->set_step(failure.step);
  failed->set_worker(failure.worker);
  failed->set_error(Shortened(failure.error));
  failed->set_error_code(failure.code);
  context_.Record(std::move(event));
  context_.Changed(job->id);
}

bool Checkpoints::EndIfRefused(Job* job) {
  for (const auto& [worker, unstored] : context_.attempts.at(job->id).unstored) {
    if (!unstored.is_permanent) continue;
    const std::string who = worker.empty() ? "the coordinator" : Context::WorkerText(*job, worker);
    const std::string& stop_reason = context_.attempts.at(job->id).stop_reason;
    const std::string what = unstored.step == job->spec.steps()
                                 ? "the last state"
                                 : absl::StrCat("the state before step ", unstored.step,
                                                stop_reason.empty() ? "" : ", at which the attempt ", stop_reason, ",");
    EndJob(
        context_, job, FAILED,
        absl::StrCat(what, " cannot be stored in ", PlaceText(job->spec), ": ", who, " found: ", unstored.error,
                     "; expected ",
                     IsOnCoordinator(job->spec) ? "a coordinator that accepts the state: correct what was found, then "
                                                  "resume the job"
                                                : "a place that all workers and the coordinator can write",
                     "; ", NewestText(*job)));
    return true;
  }
  return false;
}

void Checkpoints::StoreIfComplete(Job* job, int64_t step) {
  Attempt& attempt = context_.attempts.at(job->id);
  if (job->state != RUNNING) return;  // Workers may write shards before the coordinator knows that they are ready.
  const auto& shards = attempt.shards.at(step);
  if (std::ssize(shards) < job->placed.peers_size() || attempt.storing_step >= step) return;
  if (context_.now_ns < attempt.store_from_ns) return;
  attempt.storing_step = step;
  StoreIndex request{job->current(), job->spec.checkpoint().uri(), {}};
  request.index.set_job_id(job->id.str());
  request.index.set_attempt(job->attempt);
  request.index.set_generation(job->placed.generation());
  request.index.set_step(step);
  request.index.set_job_name(job->spec.name());
  request.index.set_next_batch(job->spec.batch_count() > 0 ? step % job->spec.batch_count() : 0);
  request.index.set_unix_ns(context_.wall_ns);
  *request.index.mutable_mesh() = job->placed_mesh;
  for (const JobSpec::Parameter& parameter : job->spec.parameters()) {
    if (parameter.kind() != JobSpec::Parameter::STATE) continue;
    CheckpointTensor* tensor = request.index.add_tensors();
    tensor->set_name(parameter.name());
    *tensor->mutable_shape() = parameter.shape();
  }
  for (const auto& [id, shard] : shards) *request.index.add_shards() = shard;
  context_.effects.actions.push_back(std::move(request));
}

void Checkpoints::OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored) {
  const AttemptId& id = request.attempt;
  Job* job = context_.FindRunning(id.job.str(), id.number, id.generation.value());
  if (job == nullptr) return RemoveLateCheckpoint(context_, id.job, stored);
  Attempt& attempt = context_.attempts.at(job->id);
  const int64_t step = request.index.step();
  if (attempt.storing_step == step) attempt.storing_step = -1;
  if (absl::IsDataLoss(stored.status())) {  // A retry would fail as well.
    return FailAttempt(context_, job,
                       {absl::StrCat("the checkpoint of step ", step, " is lost: ", stored.status().message()), "", "",
                        -1});
  }
  if (!stored.ok()) {  // A later tick retries.
    LogError("the index of a checkpoint cannot be stored", {{"job", id.job.str()},
                                                            {"step", absl::StrCat(step)},
                                                            {"error", std::string(stored.status().message())}});
    if (attempt.failed_index_step != step) attempt.index_failures = 0;
    attempt.failed_index_step = step;
    ++attempt.index_failures;
    attempt.store_from_ns = context_.now_ns + RetryPauseMs(context_.options, attempt.index_failures) * kNsPerMs;
    return RecordFailure(job, {step, "", std::string(stored.status().message()), stored.status().raw_code(),
                               /*must_be_stored=*/step == attempt.stop_at});
  }
  if (step <= NewestStep(*job)) return;
  JobEvent event = context_.NewEvent(job->id);
  CheckpointCommitted* committed = event.mutable_checkpoint();
  committed->set_attempt(job->attempt);
  committed->set_generation(job->placed.generation());
  committed->set_step(step);
  committed->set_uri(stored->uri);
  committed->set_index_digest(stored->digest);
  context_.Record(std::move(event));
  attempt.shards.erase(attempt.shards.begin(), attempt.shards.upper_bound(step));
  attempt.index_failures = attempt.store_from_ns = 0;
  attempt.unstored.clear();
  if (attempt.requested_step <= step) attempt.requested_step = -1;
  attempt.last_checkpoint_ns = context_.now_ns;
  CoordinatorMessage message;
  SetAttempt(job->current(), message.mutable_committed());
  message.mutable_committed()->set_step(step);
  context_.SendToAll(*job, message);
  context_.Changed(job->id);
  DropOld(job);
  RemoveOldFiles(context_, *job);
}

void Checkpoints::DropOld(Job* job) {
  const int32_t keep = job->spec.checkpoint().keep() > 0 ? job->spec.checkpoint().keep() : kKeptByDefault;
  const int64_t surplus = std::ssize(job->checkpoints) - keep;
  if (surplus <= 0) return;
  JobEvent event = context_.NewEvent(job->id);
  for (int64_t i = 0; i < surplus; ++i) {
    const Checkpoint& old = job->checkpoints[i];
    event.mutable_dropped()->add_steps(old.step);
    const auto starts_from_it = [&](const auto& attempt) {
      const Job& other = *context_.jobs.Find(attempt.first);
      return other.attempt_running && other.placed.checkpoint_uri() == old.uri && other.state == STARTING;
    };
    const bool is_needed = context_.jobs.IsResumed(old.uri) ||
                           std::any_of(context_.attempts.begin(), context_.attempts.end(), starts_from_it);
    if (!is_needed) context_.effects.actions.push_back(DropCheckpoint{old.uri});
  }
  context_.Record(std::move(event));
}

}  // namespace xlad::service
