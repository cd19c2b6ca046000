// The durable record of all jobs: events and step metrics, append-only.
//
// When an append returns OK, its rows survive kill -9 and a power failure. Used by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/job_log.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

class JobLog {
 public:
  virtual ~JobLog() = default;
  // Appends all events or none, and sets their sequence numbers (from 1, over all jobs).
  virtual absl::Status Append(std::vector<JobEvent>* events) = 0;
  virtual absl::StatusOr<std::vector<JobEvent>> ReadEvents() = 0;
  // A step that is already recorded keeps its first values.
  virtual absl::Status AppendMetrics(const std::string& job_id, const std::vector<StepMetrics>& metrics) = 0;
  // Returns the metrics of the first `limit` recorded steps from `from_step` on, in order.
  virtual absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& job_id, int64_t from_step,
                                                               int64_t limit) = 0;
  // Returns the metrics of the latest recorded step, if any.
  virtual absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const std::string& job_id) = 0;
};

// Opens a SQLite file in WAL mode with full synchronization. AlreadyExists if another process has the file open.
absl::StatusOr<std::unique_ptr<JobLog>> OpenSqliteJobLog(const std::string& path);

// A log in memory for simulations. `store` must outlive the log; a restarted coordinator opens the same store.
struct MemoryJobStore {
  std::vector<JobEvent> events;
  std::vector<std::pair<std::string, StepMetrics>> metrics;
  int fail_next_appends = 0;  // The number of following appends that fail as if the disk were full.
};
std::unique_ptr<JobLog> OpenMemoryJobLog(MemoryJobStore* store);

}  // namespace xlad::service
