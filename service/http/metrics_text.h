// The metrics of the coordinator for Prometheus; docs/reference/metrics.md lists them.
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
  std::vector<JobStatus> jobs;  // Jobs that have not ended.
  // The median time of the latest steps, in seconds, by job. A job without steps has no entry.
  std::map<std::string, double> step_seconds;
  std::map<std::string, std::vector<JobTime>> time;  // By job.
};

// Returns the metrics in the text format of Prometheus. Jobs and workers are labels. Metrics of ended jobs and removed
// workers disappear.
std::string MetricsText(const Overview& overview);

}  // namespace xlad::service
