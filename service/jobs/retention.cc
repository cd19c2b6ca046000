#include "service/jobs/retention.h"

#include <algorithm>
#include <vector>

#include "storage/job_uris.h"

namespace xlad::service {
namespace {

constexpr int64_t kFirstPauseMs = 60'000;
constexpr int64_t kSurplusEvents = 200;  // A job's events are trimmed when this many of them are no longer needed.

void AddBlob(const std::string& digest, StoredState* state) {
  if (!digest.empty()) state->blobs.insert(digest);
}

void AddState(const std::string& uri, StoredState* state) {
  if (!uri.empty()) state->states.insert(uri);
}

}  // namespace

Retention::Retention(Context* context)
    : context_(*context), next_ns_(std::min(kFirstPauseMs, context->options.compact_interval_ms) * kNsPerMs) {}

void Retention::OnTick() {
  if (!wall_offset_ns_.has_value()) wall_offset_ns_ = context_.wall_ns - context_.now_ns;
  if (context_.now_ns < next_ns_) return;
  if (RemoveEndedJobs() == kMaxRemoved) return;  // The next tick removes more jobs.
  next_ns_ = context_.now_ns + context_.options.compact_interval_ms * kNsPerMs;
  ForgetPlans();
  CleanUp clean_up;
  for (const auto& [number, job] : context_.jobs.by_number()) {
    if (job->surplus_events < kSurplusEvents) continue;
    job->surplus_events = 0;
    clean_up.trimmed.push_back({job->id, job->checkpoints});
  }
  context_.effects.actions.push_back(std::move(clean_up));
}

int64_t Retention::RemoveEndedJobs() {
  std::vector<const Job*> ended;
  for (const auto& [number, job] : context_.jobs.by_number()) {
    if (HasEnded(*job)) ended.push_back(job);
  }
  std::sort(ended.begin(), ended.end(),
            [](const Job* a, const Job* b) { return a->since_unix_ns < b->since_unix_ns; });
  const int64_t surplus = std::ssize(ended) - context_.options.keep_ended_jobs;
  // If the clock of the machine is set forward by a month, no job has become a month older.
  const int64_t wall_ns = std::min(context_.wall_ns, context_.now_ns + *wall_offset_ns_);
  const int64_t oldest_ns = wall_ns - context_.options.keep_ended_ms * kNsPerMs;
  JobEvent event = context_.NewEvent(JobId());
  JobsRemoved* removed = event.mutable_removed();
  removed->set_generation(context_.jobs.generation().value());
  for (int64_t i = 0; i < std::ssize(ended) && removed->job_ids_size() < kMaxRemoved; ++i) {
    if (i >= surplus && ended[i]->since_unix_ns >= oldest_ns) break;
    removed->add_job_ids(ended[i]->id.str());
  }
  const int64_t count = removed->job_ids_size();
  if (count > 0) context_.Record(std::move(event));
  return count;
}

void Retention::ForgetPlans() {
  std::set<std::string> used;
  for (const Job* job : context_.jobs.Open()) used.insert(job->executable_digest);
  std::erase_if(context_.plans, [&](const auto& plan) { return !used.contains(plan.first); });
}

StoredState Retention::StateInUse() const {
  StoredState state;
  for (const auto& [number, job] : context_.jobs.by_number()) {
    state.jobs.insert(job->id.str());
    AddBlob(job->spec.program_blob(), &state);
    AddBlob(job->final_state_blob, &state);
    for (const Checkpoint& checkpoint : job->checkpoints) AddState(checkpoint.uri, &state);
    for (const std::string& uri : job->damaged) AddState(uri, &state);
    if (HasEnded(*job)) continue;
    for (const std::string& digest :
         {job->executable_digest, job->placed_executable, job->state_blob, job->placed.state_blob()}) {
      AddBlob(digest, &state);
    }
    for (const BuiltExecutable& other : job->others) AddBlob(other.digest(), &state);
    for (const Peer& peer : job->placed.peers()) {
      for (const PeerDevices& kind : peer.kinds()) AddBlob(kind.executable_digest(), &state);
    }
    for (const std::string& uri : {storage::StateUri(job->spec), storage::DataUri(job->spec), job->resumed.uri,
                                   job->placed.checkpoint_uri()}) {
      AddState(uri, &state);
    }
    const auto attempt = context_.attempts.find(job->id);
    if (attempt == context_.attempts.end()) continue;
    for (const auto& [step, shards] : attempt->second.shards) {
      for (const auto& [worker, shard] : shards) AddState(shard.uri(), &state);
    }
  }
  return state;
}

}  // namespace xlad::service
