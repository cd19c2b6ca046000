#include <algorithm>

#include "service/job_log.h"

namespace xlad::service {
namespace {

class MemoryJobLog final : public JobLog {
 public:
  explicit MemoryJobLog(MemoryJobStore* store) : store_(store) {}

  absl::Status Append(std::vector<JobEvent>* events) override {
    XLAD_RETURN_IF_ERROR(MaybeFail());
    for (JobEvent& event : *events) {
      event.set_sequence(std::ssize(store_->events) + 1);
      store_->events.push_back(event);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<JobEvent>> ReadEvents() override { return store_->events; }

  absl::Status AppendMetrics(const std::string& job_id, const std::vector<StepMetrics>& metrics) override {
    XLAD_RETURN_IF_ERROR(MaybeFail());
    for (const StepMetrics& step : metrics) {
      const bool known = std::any_of(store_->metrics.begin(), store_->metrics.end(), [&](const auto& row) {
        return row.first == job_id && row.second.step() == step.step();
      });
      if (!known) store_->metrics.emplace_back(job_id, step);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& job_id, int64_t from_step,
                                                       int64_t limit) override {
    std::vector<StepMetrics> metrics;
    for (const auto& [id, step] : store_->metrics) {
      if (id == job_id && step.step() >= from_step) metrics.push_back(step);
    }
    std::sort(metrics.begin(), metrics.end(), [](const auto& a, const auto& b) { return a.step() < b.step(); });
    if (std::ssize(metrics) > limit) metrics.resize(limit);
    return metrics;
  }

  absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const std::string& job_id) override {
    XLAD_ASSIGN_OR_RETURN(std::vector<StepMetrics> all, ReadMetrics(job_id, 0, INT64_MAX));
    return all.empty() ? std::optional<StepMetrics>() : std::optional<StepMetrics>(all.back());
  }

 private:
  absl::Status MaybeFail() {
    if (store_->fail_next_appends == 0) return absl::OkStatus();
    --store_->fail_next_appends;
    return absl::ResourceExhaustedError("job log: disk full");
  }

  MemoryJobStore* store_;
};

}  // namespace

std::unique_ptr<JobLog> OpenMemoryJobLog(MemoryJobStore* store) { return std::make_unique<MemoryJobLog>(store); }

}  // namespace xlad::service
