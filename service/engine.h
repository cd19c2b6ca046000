// Runs the coordinator. One thread handles the events that have arrived, commits them (group_commit.h) and carries out
// the actions. Other threads run builds in child processes and transfer blobs.
//
// Thread-safe. Independent of gRPC: rpc/ translates remote calls into calls of these methods. A method returns
// when the records on which its result depends are durable. While the log cannot be written, methods return Unavailable
// with the reason, workers are disconnected (their jobs continue), and the engine retries opening the log.
#pragma once

#include <atomic>
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

#include "base/process/child_process.h"
#include "service/blobs/blob_collector.h"
#include "service/blobs/blob_peers.h"
#include "service/blobs/blob_store.h"
#include "service/blobs/executable_cache.h"
#include "service/build_queue/build_child.h"
#include "service/build_queue/build_queue.h"
#include "service/folder_work.h"
#include "service/goodput.h"
#include "service/group_commit.h"
#include "service/trace_store.h"
#include "storage/batch_spool.h"
#include "storage/store.h"

namespace xlad::service {

// Sends messages to one attached worker. The engine calls the methods with a lock held, so they must not block.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // `common` is as in SendMessage.
  virtual void Send(const CoordinatorMessage& message, std::shared_ptr<const std::string> common) = 0;
  // Closes the stream after all messages passed to Send.
  virtual void Close() = 0;
};

struct EngineOptions {
  std::string data_folder;  // The job log, the blobs and one folder per job. Readable only by its owner.
  // The xlad program, run as "program_path __build" for each build: kOwnProgram, except in tests.
  std::string program_path;
  bool keep_idle_build = false;  // See BuildPoolOptions.keep_idle.
  std::string cache_folder;      // The executable cache; empty for none.
  ChildLimits build_limits;
  CoordinatorOptions coordinator;
  // Opens the job log. If empty, the log is the SQLite file in data_folder.
  std::function<absl::StatusOr<std::shared_ptr<JobLog>>()> open_log;
  BuildQueueOptions builds;
  BlobCollectorOptions blobs;
  int64_t folder_patience_ms = 10'000;  // How long requests and builds wait for a folder that a user names.
};

// The class has more than 25 methods: one for each request of clients and workers, and those of its threads.
class Engine {
 public:
  static constexpr int64_t kMetricsPerUpdate = 2000;

  // Returns an error if the data folder or the log cannot be opened. If the log fails later, the engine itself reopens
  // it.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(const EngineOptions& options);
  ~Engine();

  // `on_change` is called when a job may have changed and when the engine stops; it must not block and must not call
  // the engine. SetChangeListener must be called once, before the first request.
  void SetChangeListener(std::function<void()> on_change);

  // --- Requests of clients. `actor` is who makes the request (Caller::actor in security/roles.h); the log records it.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request, const std::string& actor = "");
  absl::Status Cancel(const std::string& job_id, const std::string& actor = "");
  absl::Status Resize(const ResizeJobRequest& request, const std::string& actor = "");
  // Lists only the jobs for which `shows` returns true; all jobs if `shows` is null.
  absl::StatusOr<ListJobsResponse> ListJobs(const ListJobsRequest& request,
                                            const std::function<bool(const Job&)>& shows = nullptr);
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id);
  // The client keys of these jobs, in the same order. The key of a job that does not exist is empty.
  absl::StatusOr<std::vector<std::string>> ClientKeys(const std::vector<std::string>& job_ids);
  absl::StatusOr<WhyJobResponse> Why(const std::string& job_id);
  absl::StatusOr<JobLogResponse> Log(const JobLogRequest& request);
  // How the job has spent its time, by cause.
  absl::StatusOr<std::vector<JobTime>> Time(const std::string& job_id);
  // The stored part of the job's trace: TraceRecord messages (proto/trace.proto).
  absl::StatusOr<std::string> Trace(const std::string& job_id);
  // How each device spent its last recorded step, by device; see TraceStore.
  std::map<int, StepShare> StepShares(const std::string& job_id) { return traces_->Shares(job_id); }
  // Shows only the jobs for which `shows` returns true; null shows all jobs.
  absl::StatusOr<ListWorkersResponse> ListWorkers(const WorkerMachine::Shows& shows = nullptr);
  absl::Status Drain(const std::string& worker_id, const std::string& actor = "");
  absl::Status Undrain(const std::string& worker_id, const std::string& actor = "");
  // Also works while the engine is not serving; the status then has the reason.
  CoordinatorStatus Status();
  absl::StatusOr<BackupResponse> Backup(const std::string& folder);
  // The job's status without its checkpoints, and the metrics of at most kMetricsPerUpdate steps, beginning with
  // `from_step`.
  absl::StatusOr<WatchJobResponse> Watch(const WatchJobRequest& request);
  BlobStore& blobs() { return *blobs_; }
  BlobPeers& blob_peers() { return blob_peers_; }

  // --- Data that a client feeds (PutBatchRequest). Returns whether the job has ended and, until then, the number of
  // the first missing batch. Removes the batches that the job no longer needs.
  absl::StatusOr<PutBatchResponse> NextBatch(const std::string& job_id);
  storage::BatchSpool& spool() { return *spool_; }

  // --- Sessions (proto/session.proto).
  absl::StatusOr<OpenSessionResponse> OpenSession(const OpenSessionRequest& request, const std::string& actor = "");
  // Holds a session and returns its status. A held session does not expire. If the log is reopened, which begins a new
  // term, holds are lost. Therefore a holder calls this regularly, at least once per second. `*term` is the term in
  // which the holder holds the session, or 0: in this term, a further call does not hold the session again. After an
  // error, too, ReleaseSession must be called with the term.
  absl::StatusOr<JobStatus> HoldSession(const std::string& session_id, int64_t* term);
  void ReleaseSession(const std::string& session_id, int64_t term);
  // Returns the address of the session's first worker, or nothing while the session does not run yet. NotFound if there
  // is no such session, Aborted if it has ended, Unavailable if the engine stops or the log cannot be written.
  absl::StatusOr<std::optional<LocateSessionResponse>> LocateSession(const std::string& session_id);
  // Waits until the session runs. Calls `check` at least once per second; an error of it ends the wait.
  using Check = BlobStore::Check;
  absl::StatusOr<LocateSessionResponse> AwaitSession(const std::string& session_id, const Check& check);
  // Waits until the session runs, as AwaitSession does, and until the program is built. An error of `check` also
  // cancels the build.
  absl::StatusOr<LoadProgramResponse> LoadProgram(const LoadProgramRequest& request, const Check& check);
  absl::Status CloseSession(const std::string& session_id, const std::string& actor = "");

  // --- Workers. `outbox` must live until Detach has returned.
  ConnectionId Attach(Outbox* outbox);
  // Returns when the message is queued, or dropped because the engine stops. Blocks while the queue is full.
  void OnMessage(ConnectionId connection, const WorkerMessage& message);
  // Queues a heartbeat until the next tick or other event, so the engine's thread does not wake for each heartbeat of
  // thousands of workers. Returns false if the queue is full or the engine stops. Does not block.
  bool OnHeartbeat(ConnectionId connection, const WorkerMessage& message);
  // `why` is the reason why this coordinator ended the stream, or empty.
  void Detach(ConnectionId connection, const std::string& why);

  // Ends blocked calls and the engine's threads, cancels running builds and waits for them. Idempotent.
  // Work on folders that users name may still run. Only the destructor waits for it, because a file system may never
  // answer.
  void Stop();

 private:
  explicit Engine(const EngineOptions& options);
  absl::Status Open();
  // Opens all of the data folder except the log.
  absl::Status OpenStores();

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
  absl::Status Tell(const std::function<absl::Status(CoordinatorCore&)>& tell, const std::string& actor = "");
  absl::Status PostAndWait(const std::function<void(CoordinatorCore&)>& handle);

  // The loop of the engine's thread, and the parts of the loop.
  void Run();
  void HandleBatch(std::vector<Work> batch, bool tick);
  // Tells the coordinator how much space is free on the disk of the data folder.
  void MeasureSpace();
  void NoteStatus();  // Sets status_.
  void Refuse(const std::vector<Work>& batch);
  void StopServing();
  void TryToServe();
  void Perform(const Actions& actions);
  void PerformOne(const Action& action);
  void NotifyChange();
  // Waits for at most a second until changes_ differs from `*seen`, and stores the value of changes_ there. Returns
  // false if the engine stops. Called on the threads of requests.
  bool WaitForChange(int64_t* seen);

  // --- Work on other threads.
  struct Pool {
    std::deque<std::function<void()>> work;
    std::condition_variable available;
  };
  void RunPool(Pool* pool);
  void Enqueue(Pool* pool, std::function<void()> work);
  void BuildJob(const StartBuild& request, CancelSignal* cancel);
  void OptimizeJob(const StartOptimizing& request, CancelSignal* cancel);
  void Store(const StoreIndex& request);
  void Drop(const DropCheckpoint& request);
  void RemoveCheckpoint(const DropCheckpoint& request);
  void RemoveDroppedBlobs();
  void RemoveUnneededData(const CleanUp& request);
  absl::StatusOr<StoredState> StateInUse();
  absl::Status RemoveFolders();
  // If `quick` is not null, returns an error unless the built executable can replace it.
  absl::StatusOr<BuiltProgram> BuildProgram(const StartBuild& request, const ChildLimits& limits,
                                            const Executable* quick = nullptr);
  // Builds the program of a quick executable again, with optimized code that can replace it.
  absl::StatusOr<BuiltProgram> BuildOptimized(const StartOptimizing& request, const ChildLimits& limits);
  ChildLimits LimitsOf(CancelSignal* cancel) const;  // The limits of a build that this signal cancels.
  absl::StatusOr<BuiltProgram> RunBuild(const BuildRequest& build, const std::string& job_id,
                                        const ChildLimits& limits);
  // The folder of kernels that earlier builds of this user have compiled, or nullopt if there is no cache.
  std::optional<storage::EntryFolder> ObjectsFor(const std::string& user) const;
  // Runs RunBuild in the build queue and waits for it. Cancelled if the job's builds are canceled. Calls `check`
  // several times per second; an error of it cancels the build.
  absl::StatusOr<BuiltProgram> RunQueuedBuild(const std::string& job_id, const BuildRequest& build, const Check& check);
  // Records why the latest build was not isolated; the text is empty if it was isolated. Logs a warning when the text
  // changes from empty to a reason.
  void NoteIsolation(const std::string& not_isolated);
  void RemoveBatchesIfEnded(const std::string& job_id);
  absl::StatusOr<Executable> LoadExecutable(const std::string& digest) const;
  absl::StatusOr<PlannedProgram> PlanFor(const std::string& digest) const;
  absl::StatusOr<ResolvedResume> Resolve(const JobSpec& spec);
  // Holds the blobs that a submission names until the result is destroyed. FailedPrecondition if a blob is missing.
  absl::StatusOr<std::shared_ptr<void>> HoldBlobs(const JobSpec& spec, const ResolvedResume& resume);
  // The header of a safetensors file with the tensors of this URI; empty if the URI is empty or names a stream.
  absl::StatusOr<std::string> ReadHeader(const std::string& uri);
  absl::StatusOr<CheckpointIndex> ReadIndex(const std::string& uri);
  storage::Store OpenStore() const;
  // The folder of the file or folder with this URI, or an empty text if the URI names no file.
  static std::string FolderOfUri(const std::string& uri);
  // Returns the result of `read`, which reads from this URI. Unavailable if its file system has not answered in time;
  // `read` may still run then, and so must own what it uses.
  template <typename Result>
  absl::StatusOr<Result> ReadAt(const std::string& uri, std::function<absl::StatusOr<Result>()> read) {
    const std::string folder = FolderOfUri(uri);
    if (folder.empty()) return read();
    const auto result = std::make_shared<absl::StatusOr<Result>>();
    XLAD_RETURN_IF_ERROR(folder_reads_.Run(folder, [result, read = std::move(read)] { *result = read(); }));
    return std::move(*result);
  }
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
  BuildPool build_pool_;
  std::unique_ptr<BuildQueue> builds_;
  std::mutex collecting_;                     // Locked while blobs are removed or copied.
  std::unique_ptr<BlobCollector> collector_;  // Guarded by collecting_.
  std::atomic<bool> removal_is_due_ = false;  // Whether upkeep_ has a call of RemoveDroppedBlobs.

  std::mutex mutex_;
  std::condition_variable arrived_;   // Signals an event, or that the engine stops.
  std::condition_variable accepted_;  // Signals that the queue has room again.
  std::vector<Work> queue_;
  std::condition_variable changed_;
  int64_t changes_ = 0;  // The number of calls of NotifyChange.
  std::function<void()> on_change_;
  std::shared_ptr<JobLog> log_;  // The log for reading; null while the engine is not serving.
  absl::Status failure_;         // Why the engine is not serving.
  std::string not_isolated_;     // See CoordinatorStatus.builds_not_isolated.
  CoordinatorStatus status_;     // The status at the last tick, or when the log was opened.
  // upkeep_ has one thread, for work that may take long and is not part of a request.
  Pool transfers_, upkeep_;
  // Work on folders that users name ("file:"). The pools do no such work. Reads for requests and builds, writes of
  // indexes, and removals, which may take long, do not wait for one another.
  FolderWork folder_reads_, folder_writes_, folder_removals_;
  bool stopping_ = false;

  std::mutex outbox_mutex_;
  std::map<ConnectionId, Outbox*> outboxes_;
  int64_t next_connection_ = 1;
  bool serving_ = false;  // Whether new connections are accepted. Guarded by outbox_mutex_.

  std::thread thread_;
  std::vector<std::thread> pool_threads_;
};

}  // namespace xlad::service
