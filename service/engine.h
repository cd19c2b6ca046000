// Runs the coordinator: one thread handles what has arrived, commits it (group_commit.h) and carries out the actions;
// others build in child processes and move blobs.
//
// Thread-safe. Independent of gRPC: grpc_*.cc translates remote calls into calls of these methods. A method returns
// when everything that its result depends on is durable. While the log cannot be written, methods return Unavailable
// with the reason, workers are disconnected (their jobs continue), and the log is opened again until that succeeds.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "service/blob_collector.h"
#include "service/blob_peers.h"
#include "service/blob_store.h"
#include "service/build_child.h"
#include "service/build_queue.h"
#include "service/executable_cache.h"
#include "service/goodput.h"
#include "service/group_commit.h"
#include "service/trace_store.h"
#include "storage/batch_spool.h"
#include "storage/store.h"

namespace xlad::service {

// Sends messages to one attached worker. Called with a lock held, so methods must not block.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void Send(const CoordinatorMessage& message) = 0;
  // Closes the stream after the messages that have been sent.
  virtual void Close() = 0;
};

struct EngineOptions {
  std::string data_folder;   // The job log, the blobs and one folder per job. Only its owner can read it.
  std::string program_path;  // The xlad program, run as "program_path __build" to build.
  std::string cache_folder;  // The executable cache; empty for none.
  ChildLimits build_limits;
  CoordinatorOptions coordinator;
  // Opens the job log; empty: the SQLite file in data_folder.
  std::function<absl::StatusOr<std::shared_ptr<JobLog>>()> open_log;
  BuildQueueOptions builds;
  BlobCollectorOptions blobs;
};

// More than 25 methods: one per request of clients and workers, and the threads behind them.
class Engine {
 public:
  static constexpr int64_t kMetricsPerUpdate = 2000;

  static absl::StatusOr<std::unique_ptr<Engine>> Start(const EngineOptions& options);
  ~Engine();

  // `on_change` is called after every change of a job and when the engine stops; it must not block and must not call
  // the engine. Called once, before requests.
  void SetChangeListener(std::function<void()> on_change);

  // --- Requests of clients.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request);
  absl::Status Cancel(const std::string& job_id);
  absl::Status Resize(const ResizeJobRequest& request);
  absl::StatusOr<ListJobsResponse> ListJobs(const ListJobsRequest& request);
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id);
  // The client keys of these jobs, in their order; empty for jobs that do not exist.
  absl::StatusOr<std::vector<std::string>> ClientKeys(const std::vector<std::string>& job_ids);
  absl::StatusOr<WhyJobResponse> Why(const std::string& job_id);
  absl::StatusOr<JobLogResponse> Log(const JobLogRequest& request);
  // What the job's time was spent on, by cause.
  absl::StatusOr<std::vector<JobTime>> Time(const std::string& job_id);
  // What has been kept of the job's trace: TraceRecord messages (proto/trace.proto).
  absl::StatusOr<std::string> Trace(const std::string& job_id);
  // What each device spent its last recorded step on; see TraceStore.
  std::map<int, StepShare> StepShares(const std::string& job_id) { return traces_->Shares(job_id); }
  absl::StatusOr<ListWorkersResponse> ListWorkers();
  absl::Status Drain(const std::string& worker_id);
  absl::Status Undrain(const std::string& worker_id);
  // Also works while the engine is not serving: then it says why.
  CoordinatorStatus Status();
  absl::StatusOr<BackupResponse> Backup(const std::string& folder);
  // The job's status, and the metrics of its steps from `from_step` on: at most kMetricsPerUpdate of them.
  absl::StatusOr<WatchJobResponse> Watch(const WatchJobRequest& request);
  BlobStore& blobs() { return *blobs_; }
  BlobPeers& blob_peers() { return blob_peers_; }

  // --- Data that a client feeds (PutBatchRequest).
  // Whether the job still takes batches, and the first that is missing. Removes those that it does not need any more.
  absl::StatusOr<PutBatchResponse> NextBatch(const std::string& job_id);
  storage::BatchSpool& spool() { return *spool_; }

  // --- Sessions (proto/session.proto).
  absl::StatusOr<OpenSessionResponse> OpenSession(const OpenSessionRequest& request);
  // A held session does not expire. Each successful call must be matched by one of ReleaseSession.
  absl::Status HoldSession(const std::string& session_id);
  void ReleaseSession(const std::string& session_id);
  // Where the session's first worker serves; waits until the session runs. Aborted if it has ended, Unavailable if the
  // engine stops.
  absl::StatusOr<LocateSessionResponse> LocateSession(const std::string& session_id);
  absl::StatusOr<LoadProgramResponse> LoadProgram(const LoadProgramRequest& request);
  absl::Status CloseSession(const std::string& session_id);

  // --- Workers. `outbox` must live until Detach has returned.
  ConnectionId Attach(Outbox* outbox);
  // Returns when the message is queued; waits if too many are.
  void OnMessage(ConnectionId connection, const WorkerMessage& message);
  // Queues a heartbeat, to be handled with the next other event or tick: so thousands of workers do not wake the
  // engine's thread for each one. Returns false if too many events wait. Does not block.
  bool OnHeartbeat(ConnectionId connection, const WorkerMessage& message);
  void Detach(ConnectionId connection);

  // Ends waiting calls and threads, and waits for running builds. Idempotent.
  void Stop();

 private:
  explicit Engine(const EngineOptions& options);
  absl::Status Open();

  // Queues an event; `answer` may be null.
  void Post(std::function<void(CoordinatorCore&)> handle, std::function<void(const absl::Status&)> answer = nullptr);
  // Runs `ask(coordinator)` on the engine's thread and waits until its effects are durable.
  template <typename Result>
  absl::StatusOr<Result> Ask(const std::function<absl::StatusOr<Result>(CoordinatorCore&)>& ask) {
    std::optional<absl::StatusOr<Result>> result;
    const absl::Status committed = PostAndWait([&](CoordinatorCore& coordinator) { result = ask(coordinator); });
    if (!committed.ok()) return committed;
    return *std::move(result);
  }
  absl::Status Tell(const std::function<absl::Status(CoordinatorCore&)>& tell);
  absl::Status PostAndWait(const std::function<void(CoordinatorCore&)>& handle);

  // The engine's thread.
  void Run();
  void HandleBatch(std::vector<Work> batch, bool tick);
  void Refuse(const std::vector<Work>& batch);
  void StopServing();
  void TryToServe();
  void Perform(const Actions& actions);
  void PerformOne(const Action& action);
  void NotifyChange();
  // Waits for a change after `seen`, which is the number of changes so far; false if the engine stops.
  bool WaitForChange(int64_t* seen);

  // Work on other threads.
  struct Pool {
    std::deque<std::function<void()>> work;
    std::condition_variable available;
  };
  void RunPool(Pool* pool);
  void Enqueue(Pool* pool, std::function<void()> work);
  void BuildJob(const StartBuild& request, CancelSignal* cancel);
  void Drop(const DropCheckpoint& request);
  void Clean(const CleanUp& request);
  absl::StatusOr<StoredState> StateInUse();
  absl::Status RemoveFolders();
  absl::StatusOr<BuiltProgram> BuildProgram(const StartBuild& request, CancelSignal* cancel);
  absl::StatusOr<BuiltProgram> RunBuild(const BuildRequest& build, const std::string& folder, CancelSignal* cancel);
  // RunBuild in the queue of builds. Cancelled if the job's builds are cancelled.
  absl::StatusOr<BuiltProgram> RunQueuedBuild(const std::string& job_id, const BuildRequest& build);
  void RemoveBatchesIfEnded(const std::string& job_id);
  absl::StatusOr<Executable> LoadExecutable(const std::string& digest) const;
  absl::StatusOr<PlannedProgram> PlanFor(const std::string& digest) const;
  absl::StatusOr<Checkpoint> WriteIndex(const StoreIndex& request);
  absl::StatusOr<ResolvedResume> Resolve(const std::string& resume);
  // Keeps the blobs that a submission names until it is recorded. FailedPrecondition if one is missing.
  absl::StatusOr<std::shared_ptr<void>> HoldBlobs(const JobSpec& spec, const ResolvedResume& resume);
  // The header of a safetensors file with the tensors of this URI; empty if the URI is.
  absl::StatusOr<std::string> ReadHeader(const std::string& uri) const;
  storage::Store OpenStore() const;
  absl::StatusOr<JobSpec> SpecOf(const JobId& id);
  absl::StatusOr<std::shared_ptr<JobLog>> ReadableLog();
  std::string FolderOf(const std::string& job_id) const;
  JobStatus WithFolder(JobStatus status) const;

  const EngineOptions options_;
  const int64_t started_unix_ns_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<storage::BatchSpool> spool_;
  std::unique_ptr<TraceStore> traces_;
  GoodputMeter goodput_;
  BlobPeers blob_peers_;
  std::unique_ptr<Random> random_;
  ExecutableCache cache_;
  std::unique_ptr<GroupCommit> commit_;  // Used by the engine's thread.
  std::unique_ptr<BuildQueue> builds_;
  std::mutex collecting_;                 // Held while blobs are removed, and while they are copied.
  std::unique_ptr<BlobCollector> collector_;  // Under collecting_.
  int64_t collected_ns_ = 0;                  // When blobs of dropped checkpoints were removed last.

  std::mutex mutex_;
  std::condition_variable arrived_;   // Events, and the end.
  std::condition_variable accepted_;  // The queue has room again.
  std::vector<Work> queue_;
  std::condition_variable changed_;
  int64_t changes_ = 0;               // The number of changes of jobs so far.
  std::function<void()> on_change_;
  std::shared_ptr<JobLog> log_;       // For readers; null while the engine does not serve.
  absl::Status failure_;              // Why it does not serve.
  CoordinatorStatus status_;          // As of the last tick.
  // The second one has one thread, for work that may take long and that no request waits for.
  Pool transfers_, upkeep_;
  bool stopping_ = false;

  std::mutex outbox_mutex_;
  std::map<ConnectionId, Outbox*> outboxes_;
  int64_t next_connection_ = 1;
  bool serving_ = false;              // Under outbox_mutex_: whether new connections are accepted.

  std::thread thread_;
  std::vector<std::thread> pool_threads_;
};

}  // namespace xlad::service
