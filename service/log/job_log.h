// The durable record of all jobs: events and step metrics, append-only.
//
// When Append returns OK, all of the batch survives kill -9 and a power failure. When it fails, the batch may or may
// not be there: the caller must open the log again and read it. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/job_log.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

struct LogBatch {
  struct Metrics {
    JobId job;
    std::vector<StepMetrics> rows;
  };
  std::vector<JobEvent> events;
  std::vector<Metrics> metrics;
  bool empty() const { return events.empty() && metrics.empty(); }
};

// What compaction removes: everything about some jobs, and single events that no fold needs any more.
struct LogCompaction {
  std::vector<JobId> jobs;
  std::vector<int64_t> events;  // Sequence numbers, ascending.
  bool empty() const { return jobs.empty() && events.empty(); }
};

class JobLog {
 public:
  virtual ~JobLog() = default;
  // Appends all of the batch or nothing, with one sync, and sets the sequence numbers of the events (from 1, over all
  // jobs). The metrics of a step that a later attempt has run again replace those of the earlier attempt; apart from
  // that, a step that is recorded keeps its first values.
  virtual absl::Status Append(LogBatch* batch) = 0;
  // Calls `visit` with every event in order, until it returns an error.
  virtual absl::Status ReadEvents(const std::function<absl::Status(const JobEvent&)>& visit) = 0;
  // The first `limit` events of the job after a sequence number, in order.
  virtual absl::StatusOr<std::vector<JobEvent>> ReadEventsOf(const JobId& job, int64_t after_sequence,
                                                             int64_t limit) = 0;
  // Returns the metrics of the first `limit` recorded steps from `from_step` on, in order.
  virtual absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const JobId& job, int64_t from_step, int64_t limit) = 0;
  // Returns the metrics of the latest step that this attempt or, if `attempt` is 0, any attempt has recorded.
  virtual absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const JobId& job, int64_t attempt) = 0;
  // Deletes in several small transactions, so that appends continue between them. A crash leaves the latest events of
  // some jobs deleted, all of the jobs before any of the single events, and these in their order. After an error the
  // log must be opened again, as after a failed append: every later append fails.
  virtual absl::Status Compact(const LogCompaction& compaction) = 0;
  // Writes a consistent copy of the log to a new file while the log is in use.
  virtual absl::Status BackUp(const std::string& path) = 0;
};

// Opens a SQLite file in WAL mode with full synchronization. AlreadyExists if another process has the file open. A log
// of an older schema is copied to PATH.schema-N and then migrated; FailedPrecondition if it is of a newer one.
absl::StatusOr<std::unique_ptr<JobLog>> OpenSqliteJobLog(const std::string& path);

// A log in memory for simulations. `store` must outlive the log; a restarted coordinator opens the same store.
struct MemoryJobStore {
  std::vector<JobEvent> events;
  std::vector<std::pair<JobId, StepMetrics>> metrics;
  int64_t next_sequence = 1;
  int fail_next_appends = 0;            // The number of following appends that fail as if the disk were full.
  bool failures_are_ambiguous = false;  // A failing append writes its batch nevertheless.
};
std::unique_ptr<JobLog> OpenMemoryJobLog(MemoryJobStore* store);

}  // namespace xlad::service
