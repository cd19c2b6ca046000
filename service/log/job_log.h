// The durable record of all jobs: events and step metrics, append-only.
//
// If Append returns OK, the batch survives kill -9 and a power failure. If it fails, the log may or may not contain the
// batch: the caller must reopen the log and read it. Thread-safe.
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

// The entries that a compaction removes: all entries of some jobs, and single events that do not affect the resulting
// state.
struct LogCompaction {
  std::vector<JobId> jobs;
  std::vector<int64_t> events;  // Sequence numbers in ascending order.
  bool empty() const { return jobs.empty() && events.empty(); }
};

class JobLog {
 public:
  virtual ~JobLog() = default;
  // Appends the batch atomically, with one sync. Sets the sequence numbers of the events, which start at 1 and count
  // the events of all jobs. If a later attempt has run a step again, its metrics replace those of the earlier attempt.
  // Otherwise, a recorded step keeps its first values.
  virtual absl::Status Append(LogBatch* batch) = 0;
  // Calls `visit` with every event in order, until it returns an error.
  virtual absl::Status ReadEvents(const std::function<absl::Status(const JobEvent&)>& visit) = 0;
  // Returns the first `limit` events of the job after a sequence number, in order. An empty `job` selects the events
  // that are not about a job.
  virtual absl::StatusOr<std::vector<JobEvent>> ReadEventsOf(const JobId& job, int64_t after_sequence,
                                                             int64_t limit) = 0;
  // Returns the metrics of the first `limit` recorded steps from `from_step` on, in order.
  virtual absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const JobId& job, int64_t from_step, int64_t limit) = 0;
  // Returns the metrics of the latest step that this attempt has recorded or, if `attempt` is 0, that any attempt has
  // recorded. Metrics from before a migration have no attempt, and count for every attempt.
  virtual absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const JobId& job, int64_t attempt) = 0;
  // Deletes in several small transactions, so that appends continue between them. The jobs are deleted first, each from
  // its latest event to its first, and then the single events in their order. A crash leaves a prefix of these
  // deletions. After an error the log must be reopened, as after a failed append: every later append fails.
  virtual absl::Status Compact(const LogCompaction& compaction) = 0;
  // Writes a consistent copy of the log to a new file while the log is in use. Appends continue meanwhile. The copy
  // has all events that were appended before the call, and may have events that are appended during the call.
  virtual absl::Status BackUp(const std::string& path) = 0;
};

// Calls `visit` with every event of the job in order.
absl::Status VisitEventsOf(JobLog& log, const JobId& job, const std::function<void(const JobEvent&)>& visit);

// Opens a SQLite file in WAL mode with full synchronization. AlreadyExists if another process has the file open. A log
// of an older schema version N is copied to PATH.schema-N and then migrated. FailedPrecondition if the schema is newer
// than this program. DataLoss if events or the schema are damaged. Reads return DataLoss if an event or the metrics of
// a step differ from what was written, except for metrics that an older xlad wrote without a checksum. If the pages of
// the metrics are damaged, rows of them can be missing.
absl::StatusOr<std::unique_ptr<JobLog>> OpenSqliteJobLog(const std::string& path);

// A log in memory for simulations. `store` must outlive the log; a restarted coordinator opens the same store.
struct MemoryJobStore {
  std::vector<JobEvent> events;
  std::vector<std::pair<JobId, StepMetrics>> metrics;
  int64_t next_sequence = 1;
  int fail_next_appends = 0;            // How many appends, from the next one on, fail as if the disk were full.
  bool failures_are_ambiguous = false;  // Whether an append that fails writes its batch nevertheless.
};
std::unique_ptr<JobLog> OpenMemoryJobLog(MemoryJobStore* store);

}  // namespace xlad::service
