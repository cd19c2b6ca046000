// The durable record of every job: events and step metrics, append-only.
//
// An OK return means the rows survive a kill -9 and a power cut. Used by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/job_log.pb.h"

namespace xlad::service {

class JobLog {
 public:
  virtual ~JobLog() = default;
  // All events or none; fills in their sequence numbers.
  virtual absl::Status Append(std::vector<JobEvent>* events) = 0;
  virtual absl::StatusOr<std::vector<JobEvent>> ReadEvents() = 0;
  // A step that is on record already is kept as it is.
  virtual absl::Status AppendMetrics(const std::string& job_id, const std::vector<StepMetrics>& metrics) = 0;
  // Of steps >= from_step in order; at most `limit` of them.
  virtual absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& job_id, int64_t from_step,
                                                               int64_t limit) = 0;
  // The newest step on record, if there is one.
  virtual absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const std::string& job_id) = 0;
};

// SQLite in WAL mode with full synchronisation. A second process on the same file is refused.
absl::StatusOr<std::unique_ptr<JobLog>> OpenSqliteJobLog(const std::string& path);

// For simulations: lives as long as `store`, which a restarted coordinator is given again.
struct MemoryJobStore {
  std::vector<JobEvent> events;
  std::vector<std::pair<std::string, StepMetrics>> metrics;
  int fail_next_appends = 0;  // So many appends fail as on a full disk.
};
std::unique_ptr<JobLog> OpenMemoryJobLog(MemoryJobStore* store);

}  // namespace xlad::service
