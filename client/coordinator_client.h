// The C++ client of a coordinator. It submits jobs and watches them.
//
// Thread-safe. Each call except Watch has a deadline: 30 s, or 10 min for blobs, traces and backups. Errors are those
// of the coordinator, DeadlineExceeded, or Unavailable: "coordinator HOST:PORT cannot be reached: ...", "... cannot
// serve the call now: ..." with the coordinator's reason, or "... ended the call". If the token of a call is refused,
// and the token's file has another token by then, the call is made again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/grpc_channel.h"
#include "client/job_directory.h"
#include "proto/job.pb.h"
#include "proto/job_state.h"
#include "proto/xlad_v1.h"
#include "storage/range_reader.h"

namespace xlad::client {

class CoordinatorClient {
 public:
  // Makes a client. The first call establishes the connection. Errors as in MakeChannel and ReadToken.
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Connect(const Endpoint& endpoint);
  virtual ~CoordinatorClient() = default;

  // Uploads the blobs that the coordinator does not have, and submits the job. Returns the job's id. If the same job
  // was submitted before with the same `client_key`, returns the id of that submission. The first call to the
  // coordinator is not repeated. After it, each upload and the submission are repeated for up to 30 s while the
  // coordinator cannot be reached.
  virtual absl::StatusOr<std::string> Submit(const Job& job, const std::string& client_key) = 0;
  // Calls `on_update`, in this thread, with each update of the job, until `on_update` returns false or the job has
  // ended. Metrics arrive in order of their steps, each step once. Reconnects if the connection is lost. Unavailable if
  // the coordinator cannot be reached for `patience_ms`.
  virtual absl::Status Watch(const std::string& job_id, int64_t patience_ms,
                             const std::function<bool(const WatchJobResponse&)>& on_update) = 0;
  // Returns all jobs that match the request. This may need several calls to the coordinator.
  virtual absl::StatusOr<std::vector<JobStatus>> ListJobs(const ListJobsRequest& request) = 0;
  absl::StatusOr<std::vector<JobStatus>> ListJobs() { return ListJobs(ListJobsRequest()); }
  virtual absl::StatusOr<JobStatus> GetJob(const std::string& job_id) = 0;
  virtual absl::Status Cancel(const std::string& job_id) = 0;
  // Continues the job on another mesh, or, if `devices` is not 0, on this number of devices.
  virtual absl::Status Resize(const std::string& job_id, const std::vector<MeshAxis>& mesh, int64_t devices) = 0;
  virtual absl::StatusOr<WhyJobResponse> Why(const std::string& job_id) = 0;
  virtual absl::StatusOr<JobLogResponse> Log(const std::string& job_id) = 0;  // Returns all events of the job.
  // The recorded steps of all workers of a job, as the coordinator keeps them (observe::ReadTraces).
  virtual absl::StatusOr<std::string> Trace(const std::string& job_id) = 0;
  virtual absl::StatusOr<ListWorkersResponse> ListWorkers() = 0;
  virtual absl::Status DrainWorker(const std::string& worker_id) = 0;
  virtual absl::Status UndrainWorker(const std::string& worker_id) = 0;
  virtual absl::StatusOr<CoordinatorStatus> Status() = 0;
  // Writes a backup into a folder on the coordinator's machine.
  virtual absl::StatusOr<BackupResponse> Backup(const std::string& folder) = 0;
  // The bytes of the blob with this SHA-256. Returns DataLoss if the received bytes have another hash.
  virtual absl::StatusOr<std::string> GetBlob(const std::string& digest) = 0;
  // Returns a reader for any range of a blob. The blob may be larger than memory. The client must outlive the reader.
  // OpenBlob and the reads are repeated for up to 30 s while the coordinator cannot be reached.
  virtual absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest) = 0;
};

}  // namespace xlad::client
