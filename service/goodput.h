// Measures how a job has spent its time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/job_log.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/job_log.h"

namespace xlad::service {

// The total time of one attempt's steps, and of the checkpoints saved between them. Steps that later attempts have
// repeated do not count.
struct AttemptTime {
  double step_ms = 0;
  double save_ms = 0;
};

// Splits the time from a job's submission to its end (to `now_unix_ns` if the job is open) by cause. The result lists
// the causes in the order of proto/job.proto, and its seconds add up to the whole time. `events` are the events of the
// job, in order. `steps` has the times of its attempts by number.
std::vector<JobTime> TimeByCause(const std::vector<JobEvent>& events, const std::map<int64_t, AttemptTime>& steps,
                                 int64_t now_unix_ns);

// Returns, for example, "step 93.1 %, compile 4.0 %, load 2.9 %": the causes with a share of at least 0.1 %, largest
// first. Empty if the total time is 0.
std::string TimeText(const std::vector<JobTime>& time);

// Reads the inputs of TimeByCause from the log and caches the sums of the steps that it has read. Thread-safe.
class GoodputMeter {
 public:
  // Returns TimeByCause of a job up to the time `now_unix_ns`. Errors are those of reading the log.
  absl::StatusOr<std::vector<JobTime>> Measure(JobLog& log, const JobId& job, int64_t now_unix_ns);

 private:
  static constexpr size_t kMaxJobs = 1024;
  struct Sums {
    int64_t attempt = 0;    // The latest attempt when the sums were read. A later attempt may repeat steps.
    int64_t next_step = 0;  // The first step that has not been read.
    std::map<int64_t, AttemptTime> by_attempt;
  };

  std::mutex mutex_;
  std::map<JobId, Sums> sums_;
};

}  // namespace xlad::service
