#include <algorithm>

#include "base/containers.h"
#include "service/log/job_log.h"

namespace xlad::service {
namespace {

class MemoryJobLog final : public JobLog {
 public:
  explicit MemoryJobLog(MemoryJobStore* store) : store_(store) {}

  absl::Status Append(LogBatch* batch) override {
    const bool fails = store_->fail_next_appends > 0;
    if (fails) --store_->fail_next_appends;
    if (!fails || store_->failures_are_ambiguous) Write(batch);
    return fails ? absl::ResourceExhaustedError("job log: disk full") : absl::OkStatus();
  }

  absl::Status ReadEvents(const std::function<absl::Status(const JobEvent&)>& visit) override {
    for (const JobEvent& event : store_->events) XLAD_RETURN_IF_ERROR(visit(event));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<JobEvent>> ReadEventsOf(const JobId& job, int64_t after_sequence,
                                                     int64_t limit) override {
    std::vector<JobEvent> events;
    for (const JobEvent& event : store_->events) {
      if (std::ssize(events) >= limit) break;
      if (event.job_id() == job.str() && event.sequence() > after_sequence) events.push_back(event);
    }
    return events;
  }

  absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const JobId& job, int64_t from_step, int64_t limit) override {
    std::vector<StepMetrics> metrics;
    for (const auto& [id, step] : store_->metrics) {
      if (id == job && step.step() >= from_step) metrics.push_back(step);
    }
    std::sort(metrics.begin(), metrics.end(), [](const auto& a, const auto& b) { return a.step() < b.step(); });
    if (std::ssize(metrics) > limit) metrics.resize(limit);
    return metrics;
  }

  absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const JobId& job, int64_t attempt) override {
    std::optional<StepMetrics> last;
    for (const auto& [id, step] : store_->metrics) {
      const bool counts = id == job && (attempt == 0 || step.attempt() == 0 || step.attempt() == attempt);
      if (counts && (!last.has_value() || step.step() > last->step())) last = step;
    }
    return last;
  }

  absl::Status Compact(const LogCompaction& compaction) override {
    const auto is_purged = [&](const std::string& job) {
      return !job.empty() && Contains(compaction.jobs, JobId(job));
    };
    std::erase_if(store_->events, [&](const JobEvent& event) {
      return is_purged(event.job_id()) || Contains(compaction.events, event.sequence());
    });
    std::erase_if(store_->metrics, [&](const auto& row) { return is_purged(row.first.str()); });
    return absl::OkStatus();
  }

  absl::Status BackUp(const std::string&) override { return absl::UnimplementedError("a log in memory has no copy"); }

 private:
  void Write(LogBatch* batch) {
    for (JobEvent& event : batch->events) {
      event.set_sequence(store_->next_sequence++);
      store_->events.push_back(event);
    }
    for (const LogBatch::Metrics& metrics : batch->metrics) {
      for (const StepMetrics& step : metrics.rows) WriteStep(metrics.job, step);
    }
  }

  void WriteStep(const JobId& job, const StepMetrics& step) {
    for (auto& [id, row] : store_->metrics) {
      if (id != job || row.step() != step.step()) continue;
      if (row.attempt() < step.attempt()) row = step;
      return;
    }
    store_->metrics.emplace_back(job, step);
  }

  MemoryJobStore* store_;
};

}  // namespace

std::unique_ptr<JobLog> OpenMemoryJobLog(MemoryJobStore* store) { return std::make_unique<MemoryJobLog>(store); }

}  // namespace xlad::service
