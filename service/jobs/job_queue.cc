#include "service/jobs/job_queue.h"

#include <utility>

namespace xlad::service {

void JobQueue::Remove(const Job& job) {
  const auto found = owners_.find(job.owner);
  if (found == owners_.end()) return;
  found->second.erase(job.number);
  if (found->second.empty()) owners_.erase(found);
}

void JobQueue::Visit(int64_t first, const std::function<Next(const JobId& job)>& visit) {
  std::map<int64_t, std::map<int64_t, JobId>*> heads;  // The next job of each owner, by number.
  for (auto& [owner, jobs] : owners_) {
    if (const auto head = jobs.lower_bound(first); head != jobs.end()) heads[head->first] = &jobs;
  }
  while (!heads.empty()) {
    const auto [number, jobs] = *heads.begin();
    heads.erase(heads.begin());
    const auto at = jobs->find(number);
    const Next next = visit(at->second);
    if (next == Next::kStop) break;
    if (next == Next::kSkipOwner) continue;
    const auto later = next == Next::kRemove ? jobs->erase(at) : std::next(at);
    if (later != jobs->end()) heads[later->first] = jobs;
  }
  std::erase_if(owners_, [](const auto& owner) { return owner.second.empty(); });
}

}  // namespace xlad::service
