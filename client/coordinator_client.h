// The C++ client: submits jobs to a coordinator and follows them.
//
// Thread-safe. Every call has a deadline; errors are the coordinator's own, with "coordinator HOST:PORT: " in front
// where it could not be reached.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/grpc_channel.h"
#include "client/job_directory.h"
#include "proto/job.pb.h"
#include "proto/job_state.h"

namespace xlad::client {

class CoordinatorClient {
 public:
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Connect(const Endpoint& endpoint);
  virtual ~CoordinatorClient() = default;

  // Uploads what the coordinator lacks and submits; returns the job's id. The same client_key and job submit once.
  virtual absl::StatusOr<std::string> Submit(const Job& job, const std::string& client_key) = 0;
  // Calls `on_update` until it returns false or the job has ended, reconnecting while the coordinator is away for at
  // most `patience_ms`. Metrics come in order, each step once.
  virtual absl::Status Watch(const std::string& job_id, int64_t patience_ms,
                             const std::function<bool(const WatchJobResponse&)>& on_update) = 0;
  virtual absl::StatusOr<std::vector<JobStatus>> ListJobs() = 0;
  virtual absl::StatusOr<JobStatus> GetJob(const std::string& job_id) = 0;
  virtual absl::Status Cancel(const std::string& job_id) = 0;
  virtual absl::StatusOr<JobLogResponse> Log(const std::string& job_id) = 0;
  virtual absl::StatusOr<ListWorkersResponse> ListWorkers() = 0;
  virtual absl::StatusOr<std::string> GetBlob(const std::string& digest) = 0;
};

}  // namespace xlad::client
