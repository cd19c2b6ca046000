// Runs a CoordinatorCore: carries out its actions, builds in child processes, stores blobs and job folders on disk.
//
// Thread-safe. Independent of gRPC: grpc_coordinator_daemon.cc translates remote calls into calls of these methods.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "service/blob_store.h"
#include "service/build.h"
#include "service/coordinator.h"
#include "service/executable_cache.h"
#include "service/session_arrays.h"
#include "service/state_assembly.h"

namespace xlad::service {

// Sends messages to one attached worker. Called with the engine's lock held, so methods must not block.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void Send(const CoordinatorMessage& message) = 0;
  virtual void Close() = 0;
};

struct EngineOptions {
  std::string data_folder;   // The job log, the blobs and one folder per job.
  std::string program_path;  // The xlad program, run as "program_path __build" to build.
  std::string cache_folder;  // The executable cache; empty for none.
  ChildLimits build_limits;
  CoordinatorOptions coordinator;
};

// More than 25 methods: one per request of clients and workers, and the threads behind them.
class Engine {
 public:
  static constexpr int64_t kMetricsPerUpdate = 2000;

  static absl::StatusOr<std::unique_ptr<Engine>> Start(const EngineOptions& options);
  ~Engine();

  // `on_change` is called, with the engine's lock held, after every change of a job and when the engine stops; it must
  // not block. Called once, before requests.
  void SetChangeListener(std::function<void()> on_change);

  // --- Requests of clients.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request);
  absl::Status Cancel(const std::string& job_id);
  ListJobsResponse ListJobs();
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id);
  absl::StatusOr<JobLogResponse> Log(const std::string& job_id);
  ListWorkersResponse ListWorkers();
  // The job's status, and the metrics of its steps from `from_step` on: at most kMetricsPerUpdate of them.
  absl::StatusOr<WatchJobResponse> Watch(const WatchJobRequest& request);
  BlobStore& blobs() { return *blobs_; }

  // --- Sessions: see proto/session.proto, which says which calls wait.
  absl::StatusOr<OpenSessionResponse> OpenSession(const OpenSessionRequest& request);
  // A held session does not expire. Each successful call must be matched by one of ReleaseSession.
  absl::Status HoldSession(const std::string& session_id);
  void ReleaseSession(const std::string& session_id);
  // Waits until the session runs. Aborted if it has ended, Unavailable if the engine stops.
  absl::Status WaitForSession(const std::string& session_id);
  absl::StatusOr<LoadProgramResponse> LoadProgram(const LoadProgramRequest& request);
  absl::StatusOr<PutArrayResponse> PutArray(const std::string& session_id, const ArrayShape& shape,
                                            const std::string& bytes);
  absl::StatusOr<CallProgramResponse> CallProgram(const CallProgramRequest& request);
  absl::StatusOr<std::shared_ptr<const tensor::Array>> GetArray(const GetArrayRequest& request);
  absl::Status FreeArrays(const FreeArraysRequest& request);
  absl::Status CloseSession(const std::string& session_id);
  // Requests of the session's workers.
  absl::StatusOr<tensor::Array> ReadArrayShard(const GetArrayShardRequest& request);
  absl::Status PutArrayShard(const PutArrayShardRequest& header, const std::string& bytes);

  // --- Workers. `outbox` must live until Detach has returned.
  ConnectionId Attach(Outbox* outbox);
  void OnMessage(ConnectionId connection, const WorkerMessage& message);
  void Detach(ConnectionId connection);
  absl::Status PutStateShard(const PutStateShardRequest& header, std::string bytes);

  // Ends waiting calls and threads, and waits for running builds. Idempotent.
  void Stop();

 private:
  explicit Engine(const EngineOptions& options);
  absl::Status Recover();
  // Runs `work(actions)` with the lock held and carries out the actions. Returns the result of `work`.
  template <typename Work>
  auto WithCore(const Work& work) {
    const std::lock_guard lock(mutex_);
    Actions actions;
    auto result = work(&actions);
    Perform(actions);
    return result;
  }
  void Perform(const Actions& actions);
  void NotifyChange();
  void RunTicks();
  void RunBackground();
  void BuildJob(const StartBuild& request);
  void Assemble(const AssembleState& request);
  absl::StatusOr<BuiltProgram> BuildProgram(const StartBuild& request);
  absl::StatusOr<BuiltProgram> RunBuild(const BuildRequest& build, const std::string& folder);
  absl::StatusOr<Executable> LoadExecutable(const std::string& digest) const;
  void PerformOne(const Action& action);
  // The header of a safetensors file with the tensors of this URI; empty if the URI is.
  absl::StatusOr<std::string> ReadHeader(const std::string& uri) const;
  std::string FolderOf(const std::string& job_id) const;
  JobStatus WithFolder(JobStatus status) const;

  const EngineOptions options_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<JobLog> log_;
  std::unique_ptr<Random> random_;
  StateAssembly assembly_;
  SessionArrays arrays_;
  ExecutableCache cache_;

  std::mutex mutex_;
  std::condition_variable changed_;         // Signaled when a job changes and when the engine stops.
  std::condition_variable work_available_;
  std::unique_ptr<CoordinatorCore> core_;
  std::map<ConnectionId, Outbox*> outboxes_;
  std::deque<std::function<void()>> work_;  // Builds and assemblies of state, for the background threads.
  ConnectionId next_connection_ = 1;
  std::function<void()> on_change_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace xlad::service
