// What the time of a job was spent on.
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

// The steps of one attempt that count: those that no later attempt has repeated.
struct AttemptTime {
  double step_ms = 0;
  double save_ms = 0;
};

// The time from the submission to the end, or to `now_unix_ns` while the job is open, by cause (proto/job.proto), in
// the order of that list. The seconds add up to that time. `events` are those of the job, in order.
std::vector<JobTime> TimeByCause(const std::vector<JobEvent>& events, const std::map<int64_t, AttemptTime>& steps,
                                 int64_t now_unix_ns);

// As "step 93.1 %, compile 4.0 %, load 2.9 %": the causes by their share, largest first, without those below 0.1 %.
// Empty if `time` is empty.
std::string TimeText(const std::vector<JobTime>& time);

// Reads from the log what TimeByCause needs, and remembers the sums of the steps that it has read. Thread-safe.
class GoodputMeter {
 public:
  absl::StatusOr<std::vector<JobTime>> Measure(JobLog& log, const JobId& job, int64_t now_unix_ns);

 private:
  static constexpr size_t kMaxJobs = 1024;
  struct Sums {
    int64_t attempt = 0;    // The latest when they were read: a later one may repeat steps.
    int64_t next_step = 0;  // The first that has not been read.
    std::map<int64_t, AttemptTime> by_attempt;
  };

  std::mutex mutex_;
  std::map<JobId, Sums> sums_;
};

}  // namespace xlad::service
