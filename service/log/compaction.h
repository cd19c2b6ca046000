// Finds the events of the log that can be deleted without changing the state that the log describes.
#pragma once

#include <vector>

#include "service/log/job.h"
#include "service/log/job_log.h"

namespace xlad::service {

// A job with events about checkpoints that are no longer kept.
struct TrimmedJob {
  JobId id;
  std::vector<Checkpoint> checkpoints;  // The checkpoints that are kept.
};

// Reads, page by page, the events of these jobs and those that are not about a job. Returns the events that can be
// deleted without changing the state that results from reading the log:
//
//   everything about jobs that a JobsRemoved names;
//   commits, failures and drops of checkpoints that are not kept, if they precede the commit of the newest kept one;
//   terms, removals and drains that later events of the same kind have replaced;
//   ends of drains, and the drains that they ended.
//
// The log may grow at the same time, because an event that is not needed now is never needed later. The state also
// stays the same if only a prefix of the returned events is deleted.
absl::StatusOr<LogCompaction> PlanCompaction(JobLog* log, const std::vector<TrimmedJob>& jobs);

}  // namespace xlad::service
