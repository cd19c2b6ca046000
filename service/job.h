// One job as the fold of its events. Pure data: no clock, no I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/job_log.pb.h"
#include "proto/job_state.h"

namespace xlad::service {

struct Job {
  std::string id;
  std::string client_key;
  std::string spec_digest;
  JobSpec spec;
  JobState state = PENDING;
  std::string reason;
  int64_t submitted_unix_ns = 0;

  std::string executable_digest;  // Empty: not built yet.
  double compile_ms = 0;
  bool cached = false;  // The executable was in the cache.

  // The last attempt, running or ended.
  int64_t attempt = 0;
  AttemptPlaced placed;
  bool attempt_running = false;
  std::string lost_worker;
  int64_t failures = 0;  // Attempts that ended without saving their state.

  // Where the next attempt starts.
  int64_t first_step = 0;
  std::string state_blob;  // Empty: the spec's.

  int64_t step = 0;  // Steps finished, as far as reported. Not in the log: metrics say.
  float loss = 0;
  bool has_loss = false;
  std::string final_state_blob;
};

// Applies one event. Unknown events are an XLAD_CHECK: the log's reader refuses newer schemas.
void Apply(const JobEvent& event, Job* job);

// The loss among what a step reported: losses and metrics in the order of the spec's results.
void NoteLoss(const StepMetrics& metrics, Job* job);

// "job a1b2 attempt 2 placed on w1 w2": one line for `xlad logs`.
std::string Describe(const JobEvent& event);

using xlad::HasEnded;
inline bool HasEnded(const Job& job) { return HasEnded(job.state); }
int64_t DeviceCount(const JobSpec& spec);

}  // namespace xlad::service
