// Which events of the log no fold needs any more.
#pragma once

#include <vector>

#include "service/log/job.h"
#include "service/log/job_log.h"

namespace xlad::service {

// A job with events about checkpoints that are not kept any more.
struct TrimmedJob {
  JobId id;
  std::vector<Checkpoint> checkpoints;  // Those that are kept.
};

// Reads the events of these jobs and those that are about no job, page by page, and returns what can be deleted without
// changing the state that results from reading the log:
//
//   everything about jobs that a JobsRemoved names;
//   commits and drops of checkpoints that are not kept, before the commit of the newest one that is;
//   terms, removals and drains that later ones have replaced.
//
// The log may grow at the same time: what is not needed once is never needed again. If only the first of the returned
// events are deleted, the state is the same too.
absl::StatusOr<LogCompaction> PlanCompaction(JobLog* log, const std::vector<TrimmedJob>& jobs);

}  // namespace xlad::service
