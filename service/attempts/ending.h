// How attempts and jobs end, and what follows.
#pragma once

#include <string>

#include "service/state/context.h"

namespace xlad::service {

// Ends a job: records it, and lets the workers of its running attempt discard it.
void EndJob(Context& context, Job* job, JobState state, const std::string& reason);

struct AttemptEnding {
  std::string reason;
  std::string lost_worker;    // The worker that was lost, or empty.
  std::string program_error;  // The error of the program itself, or empty.
  int64_t step = -1;          // Where it failed; -1: the last known step.
};
// Ends an attempt that failed. The job continues from its newest checkpoint unless its attempts are used up, or the
// program failed with the same error at the same step before.
void FailAttempt(Context& context, Job* job, const AttemptEnding& ending);

struct AttemptStop {
  std::string reason;
  int64_t step = 0;     // The attempt stopped before it, and its checkpoint is committed if the attempt had started.
  bool forget = false;  // The workers have ended their tasks; otherwise they are told to abort them.
  std::string lost_worker = {};  // The worker without which it could not start, or empty.
};
// Ends an attempt that stopped on request, or that could not start. This is not a failure of the attempt.
void StopAttempt(Context& context, Job* job, const AttemptStop& stop);

// How long a job that has failed `failures` times in a row is not placed again after its latest failure.
int64_t RetryPauseMs(const CoordinatorOptions& options, int64_t failures);

}  // namespace xlad::service
