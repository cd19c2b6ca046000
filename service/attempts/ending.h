// Ends attempts and jobs.
#pragma once

#include <string>
#include <vector>

#include "service/state/context.h"

namespace xlad::service {

// Ends a job: records its end, stops its build, and tells the workers of its running attempt to discard the attempt.
void EndJob(Context& context, Job* job, JobState state, const std::string& reason);

struct AttemptEnding {
  std::string reason;
  std::string lost_worker;    // The worker that was lost, or empty.
  std::string program_error;  // The error of the program itself, or empty.
  int64_t step = -1;          // The step at which it failed; -1 for the last known step.
  std::vector<DamageFinding> findings = {};  // The workers that found the checkpoint of the attempt damaged.
};
// Ends an attempt that failed. The job continues from its newest checkpoint, except in four cases, in which it fails:
// it is a session, its attempts are used up, the attempt before failed with the same program error at the same step, or
// the checkpoint of another job from which it should start is damaged and that job has no older one.
void FailAttempt(Context& context, Job* job, const AttemptEnding& ending);

struct AttemptStop {
  std::string reason;
  // The attempt stopped before this step. If it had started, a checkpoint of this step is committed.
  int64_t step = 0;
  bool forget = false;           // Whether the workers have ended their tasks. If not, they are told to abort them.
  std::string lost_worker = {};  // The worker whose loss kept the attempt from starting, or empty.
};
// Ends an attempt that stopped on request, or that could not start. This is not a failure of the attempt.
void StopAttempt(Context& context, Job* job, const AttemptStop& stop);

// The pause in ms before the job's next attempt, from the time of its latest failure. There is always a pause after an
// attempt that finds its checkpoint damaged, so that a short error of a disk or a path does not drop the checkpoint.
int64_t RetryPauseMs(const CoordinatorOptions& options, const Job& job);

// The pause in ms before the next try, after `failures` failures in a row: 0 after the first failure, retry_pause_ms
// after the second, then doubled with each failure up to max_retry_pause_ms.
int64_t RetryPauseMs(const CoordinatorOptions& options, int64_t failures);

}  // namespace xlad::service
