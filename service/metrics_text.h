// What the coordinator says about itself to Prometheus; docs/reference/metrics.md has the table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

// The state of a coordinator at one moment.
struct Overview {
  CoordinatorStatus status;
  ListWorkersResponse workers;
  std::vector<JobStatus> jobs;  // Those that have not ended.
  // The median time of the latest steps, in seconds, by job. A job without steps is missing.
  std::map<std::string, double> step_seconds;
  std::map<std::string, std::vector<JobTime>> time;  // By job.
};

// In the text format of Prometheus. Jobs and workers are labels; those that have ended disappear.
std::string MetricsText(const Overview& overview);

}  // namespace xlad::service
