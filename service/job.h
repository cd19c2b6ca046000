// One job: the state that results from applying its events in order. Pure data: no clock, no I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/job_log.pb.h"
#include "proto/job_state.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

struct Job {
  std::string id;
  std::string client_key;
  std::string spec_digest;
  JobSpec spec;
  JobState state = PENDING;
  std::string reason;
  int64_t submitted_unix_ns = 0;

  std::string executable_digest;  // Empty until the program is built.
  double compile_ms = 0;
  bool cached = false;  // The executable was in the cache.

  // The latest attempt, running or ended.
  int64_t attempt = 0;
  AttemptPlaced placed;
  bool attempt_running = false;
  std::string lost_worker;
  int64_t failures = 0;  // Attempts that ended without saving their state.

  // Where the next attempt starts.
  int64_t first_step = 0;
  std::string state_blob;  // Empty: the initial state of the spec.

  int64_t step = 0;  // The number of steps known to be finished. Derived from metrics, not from events.
  float loss = 0;
  bool has_loss = false;
  std::string final_state_blob;
};

// Applies one event. An unknown event is a fatal error: readers of the log refuse newer schemas before.
void Apply(const JobEvent& event, Job* job);

// Stores the loss of a step in the job. `metrics` has the values of losses and metrics in the order of the spec's
// results.
void NoteLoss(const StepMetrics& metrics, Job* job);

// Returns one line for display: "attempt 2 running".
std::string Describe(const JobEvent& event);

using xlad::HasEnded;
inline bool HasEnded(const Job& job) { return HasEnded(job.state); }
// The number of devices in the mesh.
int64_t DeviceCount(const JobSpec& spec);

}  // namespace xlad::service
