#include "service/log/compaction.h"

#include <algorithm>
#include <map>
#include <string>

namespace xlad::service {
namespace {

// Adds to `events` the events about checkpoints that are not kept or could not be stored, if they precede the newest
// kept checkpoint.
absl::Status TrimCheckpoints(JobLog* log, const TrimmedJob& job, std::vector<int64_t>* events) {
  std::vector<int64_t> surplus;
  size_t before_newest = 0;  // The number of surplus events before the commit of the newest kept checkpoint.
  XLAD_RETURN_IF_ERROR(VisitEventsOf(*log, job.id, [&](const JobEvent& event) {
    // A checkpoint that was dropped because it is damaged is remembered.
    const bool is_drop = event.has_dropped() && event.dropped().damage().empty();
    if (is_drop || event.has_checkpoint_failed()) surplus.push_back(event.sequence());
    if (!event.has_checkpoint()) return;
    const bool is_kept = std::any_of(job.checkpoints.begin(), job.checkpoints.end(), [&](const Checkpoint& kept) {
      return kept.step == event.checkpoint().step() && kept.uri == event.checkpoint().uri();
    });
    if (is_kept) {
      before_newest = surplus.size();
    } else {
      surplus.push_back(event.sequence());
    }
  }));
  events->insert(events->end(), surplus.begin(), surplus.begin() + static_cast<ptrdiff_t>(before_newest));
  return absl::OkStatus();
}

// The latest event of a kind replaces the earlier ones.
class Latest {
 public:
  explicit Latest(std::vector<int64_t>* replaced) : replaced_(*replaced) {}
  void Add(int64_t sequence) {
    if (sequence_ > 0) replaced_.push_back(sequence_);
    sequence_ = sequence;
  }
  int64_t sequence() const { return sequence_; }

 private:
  std::vector<int64_t>& replaced_;
  int64_t sequence_ = 0;
};

absl::Status TrimCoordinator(JobLog* log, LogCompaction* compaction) {
  std::vector<int64_t>& events = compaction->events;
  Latest term(&events), removal(&events);
  std::map<std::string, Latest> drained, undrained;
  XLAD_RETURN_IF_ERROR(VisitEventsOf(*log, JobId(), [&](const JobEvent& event) {
    if (event.has_term_started()) term.Add(event.sequence());
    if (event.has_removed()) {
      removal.Add(event.sequence());
      for (const std::string& job : event.removed().job_ids()) compaction->jobs.emplace_back(job);
    }
    if (!event.has_drain_changed()) return;
    // A worker that is not drained does not need an event in the log.
    auto& workers = event.drain_changed().drain() ? drained : undrained;
    const std::string& worker = event.drain_changed().worker_id();
    workers.try_emplace(worker, &events).first->second.Add(event.sequence());
  }));
  for (const auto& [worker, latest] : undrained) {
    const auto drain = drained.find(worker);
    const bool is_drained = drain != drained.end() && drain->second.sequence() > latest.sequence();
    events.push_back(latest.sequence());
    if (drain != drained.end() && !is_drained) events.push_back(drain->second.sequence());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LogCompaction> PlanCompaction(JobLog* log, const std::vector<TrimmedJob>& jobs) {
  LogCompaction compaction;
  XLAD_RETURN_IF_ERROR(TrimCoordinator(log, &compaction));
  for (const TrimmedJob& job : jobs) XLAD_RETURN_IF_ERROR(TrimCheckpoints(log, job, &compaction.events));
  std::sort(compaction.events.begin(), compaction.events.end());
  return compaction;
}

}  // namespace xlad::service
