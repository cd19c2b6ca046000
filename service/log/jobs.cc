#include "service/log/jobs.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace xlad::service {

void Jobs::Apply(const JobEvent& event) {
  if (event.has_term_started()) {
    term_ = Term(event.term_started().term());
    return;
  }
  if (event.has_drain_changed()) {
    const WorkerId worker(event.drain_changed().worker_id());
    if (event.drain_changed().drain()) {
      drained_.insert(worker);
    } else {
      drained_.erase(worker);
    }
    return;
  }
  if (event.has_removed()) return ApplyRemoved(event.removed());
  std::unique_ptr<Job>& job = jobs_[JobId(event.job_id())];
  if (job == nullptr) job = std::make_unique<Job>();
  const JobState before = job->state;
  const std::string resumed = job->resumed.uri;
  service::Apply(event, job.get());
  if (event.has_dropped() && job->resumed.uri != resumed && open_.contains(job->number)) {
    if (const auto old = resumed_.find(resumed); old != resumed_.end()) resumed_.erase(old);
    resumed_.insert(job->resumed.uri);
  }
  if (job->number > 0) --counts_[before];
  if (event.has_submitted()) {
    job->number = next_number_++;
    by_number_[job->number] = job.get();
    open_[job->number] = job.get();
    by_key_[job->client_key] = job.get();
    if (!job->resumed.uri.empty()) resumed_.insert(job->resumed.uri);
  }
  if (job->number > 0) ++counts_[job->state];
  if (event.has_placed()) generation_ = std::max(generation_, Generation(event.placed().generation()));
  if (HasEnded(*job)) Close(job.get());
}

std::vector<std::string> Jobs::ResumedIn(const std::string& uri) const {
  std::vector<std::string> found;
  if (resumed_.contains(uri)) found.push_back(uri);
  const std::string prefix = absl::StrCat(uri, "/");
  for (auto at = resumed_.lower_bound(prefix); at != resumed_.end() && absl::StartsWith(*at, prefix); ++at) {
    found.push_back(*at);
  }
  return found;
}

void Jobs::SetState(Job* job, JobState state) {
  --counts_[job->state];
  ++counts_[state];
  job->state = state;
}

void Jobs::Close(Job* job) {
  if (open_.erase(job->number) == 0) return;
  job->ended_number = next_ended_number_++;
  const auto resumed = resumed_.find(job->resumed.uri);
  if (resumed != resumed_.end()) resumed_.erase(resumed);
}

Job* Jobs::Find(const JobId& id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.get();
}

const Job* Jobs::Find(const JobId& id) const { return const_cast<Jobs*>(this)->Find(id); }

const Job* Jobs::FindByKey(const std::string& client_key) const {
  const auto found = by_key_.find(client_key);
  return found == by_key_.end() ? nullptr : found->second;
}

std::vector<Job*> Jobs::Open() const {
  std::vector<Job*> open;
  open.reserve(open_.size());
  for (const auto& [number, job] : open_) open.push_back(job);
  return open;
}

std::vector<const Job*> Jobs::Page(const JobId& after, int64_t limit,
                                   const std::function<bool(const Job&)>& is_listed) const {
  const Job* last = Find(after);
  const auto removed = removed_.find(after);
  const int64_t last_number = last != nullptr ? last->number : removed != removed_.end() ? removed->second : 0;
  std::vector<const Job*> page;
  for (auto at = by_number_.upper_bound(last_number); at != by_number_.end() && std::ssize(page) < limit; ++at) {
    if (is_listed == nullptr || is_listed(*at->second)) page.push_back(at->second);
  }
  return page;
}

void Jobs::ApplyRemoved(const JobsRemoved& removed) {
  generation_ = std::max(generation_, Generation(removed.generation()));
  for (const std::string& text : removed.job_ids()) {
    const JobId id(text);
    const auto found = jobs_.find(id);
    removed_.emplace(id, found == jobs_.end() ? 0 : found->second->number);
    if (found == jobs_.end()) continue;  // The events of the removed job are already deleted.
    if (by_number_.erase(found->second->number) == 1) --counts_[found->second->state];
    Close(found->second.get());
    by_key_.erase(found->second->client_key);
    jobs_.erase(found);
  }
}

}  // namespace xlad::service
