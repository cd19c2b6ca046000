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

void Retention::AfterRecovery(const std::map<JobId, int64_t>& ages) {
  for (const auto& [number, job] : context_.jobs.by_number()) {
    if (!HasEnded(*job)) continue;
    const auto known = ages.find(job->id);
    const int64_t since_ns = std::min(std::max<int64_t>(job->since_unix_ns, 0), context_.wall_ns);
    ended_ns_[job->id] = context_.now_ns - (known != ages.end() ? known->second : context_.wall_ns - since_ns);
  }
}

void Retention::OnEnded(const JobId& id) {
  if (context_.jobs.Find(id) != nullptr) ended_ns_[id] = context_.now_ns;
}

std::map<JobId, int64_t> Retention::Ages() const {
  std::map<JobId, int64_t> ages;
  for (const auto& [id, ended_ns] : ended_ns_) ages[id] = context_.now_ns - ended_ns;
  return ages;
}

void Retention::OnTick() {
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

// Whether the job ended more than keep_ended_ms ago, by the Unix time and by the clock of this process: if the Unix
// time is set forward by a month, no job has become a month older.
bool Retention::IsOld(const Job& job) const {
  const int64_t keep_ns = context_.options.keep_ended_ms * kNsPerMs;
  const auto ended = ended_ns_.find(job.id);  // There is no entry yet if the job has ended during this tick.
  return ended != ended_ns_.end() && ended->second < context_.now_ns - keep_ns &&
         job.since_unix_ns < context_.wall_ns - keep_ns;
}

int64_t Retention::RemoveEndedJobs() {
  std::vector<const Job*> ended;
  for (const auto& [number, job] : context_.jobs.by_number()) {
    if (HasEnded(*job)) ended.push_back(job);
  }
  // Not by time: if the clock has been set back, a job that has just ended is not the oldest one.
  std::sort(ended.begin(), ended.end(), [](const Job* a, const Job* b) { return a->ended_number < b->ended_number; });
  const int64_t surplus = std::ssize(ended) - context_.options.keep_ended_jobs;
  JobEvent event = context_.NewEvent(JobId());
  JobsRemoved* removed = event.mutable_removed();
  removed->set_generation(context_.jobs.generation().value());
  for (int64_t i = 0; i < std::ssize(ended) && removed->job_ids_size() < kMaxRemoved; ++i) {
    if (i >= surplus && !IsOld(*ended[i])) continue;
    ended_ns_.erase(ended[i]->id);
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
