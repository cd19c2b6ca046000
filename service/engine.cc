#include "service/engine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "base/log.h"
#include "base/net/network.h"
#include "base/process/build_id.h"
#include "base/process/spawn.h"
#include "service/blobs/index_writer.h"
#include "service/restore.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

constexpr int32_t kMaxTimedJobs = 100;  // The limit per response, because the time of each job is read from the log.
constexpr int kTransferThreads = 2;
constexpr size_t kMaxQueuedEvents = 4096;
constexpr int64_t kMaxEventsPerPage = 1000;
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kRetryOpening = std::chrono::milliseconds(250);
constexpr int kTicksPerSpaceCheck = 10;

// Creates the file of the log or, if it exists, restricts access to its owner. SQLite copies the permissions to its
// journal files. If a process closes any descriptor of a file, the kernel releases all locks that the process has on
// the file. Therefore the new file is closed before SQLite locks it, and a file that exists is not opened.
void MakePrivate(const std::string& path) {
  const FileDescriptor created(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!created.is_open()) chmod(path.c_str(), 0600);
}

absl::Status Stopping() { return absl::UnavailableError("the coordinator is stopping"); }

}  // namespace

Engine::Engine(const EngineOptions& options)
    : options_(options),
      started_unix_ns_(RealClock().WallNs()),
      random_(SystemRandom()),
      cache_({.folder = options.cache_folder, .compiler = BuildId(options.program_path)}),
      build_pool_({.program_path = options.program_path, .keep_idle = options.keep_idle_build}),
      folder_reads_(options.folder_patience_ms),
      folder_writes_(options.folder_patience_ms),
      folder_removals_(options.folder_patience_ms) {}

Engine::~Engine() {
  Stop();
  for (FolderWork* work : {&folder_reads_, &folder_writes_, &folder_removals_}) work->Stop();
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(options));
  XLAD_RETURN_IF_ERROR(engine->Open());
  engine->thread_ = std::thread([e = engine.get()] { e->Run(); });
  for (const std::string& job : engine->spool_->Jobs()) engine->RemoveBatchesIfEnded(job);
  engine->pool_threads_.emplace_back([e = engine.get()] { e->RunPool(&e->upkeep_); });
  for (int t = 0; t < kTransferThreads; ++t)
    engine->pool_threads_.emplace_back([e = engine.get()] { e->RunPool(&e->transfers_); });
  return engine;
}

absl::Status Engine::Open() {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(options_.data_folder));
  auto open_log = options_.open_log;
  if (!open_log) {
    open_log = [path = JoinPath(options_.data_folder, "jobs.sqlite")]() -> absl::StatusOr<std::shared_ptr<JobLog>> {
      XLAD_RETURN_IF_ERROR(CheckComplete(FolderOfPath(path)));
      XLAD_RETURN_IF_ERROR(CheckLogExists(FolderOfPath(path)));
      MakePrivate(path);
      return OpenSqliteJobLog(path);
    };
  }
  commit_ = std::make_unique<GroupCommit>(options_.coordinator,
                                          GroupCommit::Environment{&RealClock(), random_.get(), open_log});
  // The log is locked while it is open. Nothing else in the folder is changed before the log is locked, because another
  // coordinator may be using the folder. Its unfinished uploads look like those that an ended coordinator has left.
  XLAD_ASSIGN_OR_RETURN(const Actions actions, commit_->TryOpen("the coordinator started"));
  XLAD_RETURN_IF_ERROR(OpenStores());
  log_ = commit_->log();
  serving_ = true;
  MeasureSpace();
  NoteStatus();
  Perform(actions);
  return absl::OkStatus();
}

absl::Status Engine::OpenStores() {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(JoinPath(options_.data_folder, "jobs")));
  if (chmod(options_.data_folder.c_str(), 0700) != 0) {
    LogWarn("the data folder may be readable by other users", {{"folder", options_.data_folder}});
  }
  // The last free space is reserved for the log, so that running jobs can continue when submissions are refused.
  const BlobStore::Options blob_options{2 * options_.coordinator.min_free_bytes, options_.blobs.clock};
  XLAD_ASSIGN_OR_RETURN(BlobStore blobs,
                        BlobStore::Open(RealFileSystem(), JoinPath(options_.data_folder, "blobs"), blob_options));
  blobs_ = std::make_unique<BlobStore>(std::move(blobs));
  collector_ = std::make_unique<BlobCollector>(blobs_.get(), options_.blobs);
  builds_ = std::make_unique<BuildQueue>(options_.builds);
  storage::BatchSpool::Limits limits;
  limits.reserve_bytes = blob_options.reserve_bytes;
  XLAD_ASSIGN_OR_RETURN(spool_, storage::BatchSpool::Open(RealFileSystem(), RealClock(),
                                                          JoinPath(options_.data_folder, "batches"), limits));
  traces_ = std::make_unique<TraceStore>(
      [this](const std::string& job_id) { return JoinPath(FolderOf(job_id), "trace.records"); });
  return absl::OkStatus();
}

void Engine::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    arrived_.notify_all();
    accepted_.notify_all();
    changed_.notify_all();
    transfers_.available.notify_all();
    upkeep_.available.notify_all();
  }
  {
    const std::lock_guard lock(outbox_mutex_);
    serving_ = false;
    for (const auto& [connection, outbox] : outboxes_) outbox->Close();
  }
  if (thread_.joinable()) thread_.join();
  for (FolderWork* work : {&folder_reads_, &folder_writes_, &folder_removals_}) work->Cancel();  // Builds may wait.
  if (builds_ != nullptr) builds_->Stop();  // Requests that have not ended may still add builds.
  for (std::thread& thread : pool_threads_) thread.join();
  pool_threads_.clear();
  NotifyChange();
}

// --- Events.

void Engine::Post(std::function<void(CoordinatorCore&)> handle, std::function<void(const absl::Status&)> answer) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      queue_.push_back({std::move(handle), std::move(answer)});
      arrived_.notify_one();
      return;
    }
  }
  if (answer) answer(Stopping());
}

absl::Status Engine::PostAndWait(const std::function<void(CoordinatorCore&)>& handle) {
  std::promise<absl::Status> done;
  Post(handle, [&done](const absl::Status& status) { done.set_value(status); });
  return done.get_future().get();
}

absl::Status Engine::Tell(const std::function<absl::Status(CoordinatorCore&)>& tell, const std::string& actor) {
  absl::Status status;
  XLAD_RETURN_IF_ERROR(PostAndWait([&](CoordinatorCore& coordinator) {
    const ActingFor acting(&coordinator, actor);
    status = tell(coordinator);
  }));
  return status;
}

void Engine::Run() {
  auto next_tick = std::chrono::steady_clock::now();
  while (true) {
    std::vector<Work> batch;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait_until(lock, next_tick, [&] { return stopping_ || !queue_.empty(); });
      batch.swap(queue_);
      accepted_.notify_all();
      if (stopping_) {
        lock.unlock();
        for (const Work& work : batch) {
          if (work.answer) work.answer(Stopping());
        }
        return;
      }
    }
    const auto now = std::chrono::steady_clock::now();
    const bool tick = now >= next_tick;
    if (!commit_->is_open()) {
      Refuse(batch);
      if (tick) TryToServe();
      if (tick) next_tick = now + kRetryOpening;
      continue;
    }
    if (tick) next_tick = now + kTick;
    HandleBatch(std::move(batch), tick);
  }
}

void Engine::HandleBatch(std::vector<Work> batch, bool tick) {
  static thread_local int ticks_until_check = 0;
  if (tick && --ticks_until_check < 0) {
    ticks_until_check = kTicksPerSpaceCheck;
    MeasureSpace();
    // Files are also removed when a checkpoint is dropped, but on a full disk none is stored, so none is dropped.
    if (!removal_is_due_.exchange(true)) {
      Enqueue(&upkeep_, [this] {
        removal_is_due_ = false;
        RemoveDroppedBlobs();
      });
    }
  }
  const absl::StatusOr<Actions> actions = commit_->Commit(batch, tick);
  if (!actions.ok()) return StopServing();
  Perform(*actions);
  for (const Work& work : batch) {
    if (work.answer) work.answer(absl::OkStatus());
  }
  if (tick) NoteStatus();
}

void Engine::MeasureSpace() {
  const absl::StatusOr<int64_t> free_bytes = RealFileSystem().FreeBytes(options_.data_folder);
  if (free_bytes.ok()) commit_->coordinator()->OnFreeBytes(*free_bytes);
}

void Engine::NoteStatus() {
  CoordinatorStatus status = commit_->coordinator()->Status();
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void Engine::Refuse(const std::vector<Work>& batch) {
  const absl::Status refusal = absl::UnavailableError(
      absl::StrCat("the job log cannot be written: ", commit_->failure().message(),
                   "; running jobs continue; repair the coordinator's disk, then the coordinator serves again"));
  for (const Work& work : batch) {
    if (work.answer) work.answer(refusal);
  }
}

void Engine::StopServing() {
  {
    const std::lock_guard lock(mutex_);
    log_ = nullptr;
    failure_ = commit_->failure();
  }
  const std::lock_guard lock(outbox_mutex_);
  serving_ = false;
  for (const auto& [connection, outbox] : outboxes_) outbox->Close();
}

void Engine::TryToServe() {
  const absl::StatusOr<Actions> actions = commit_->TryOpen("the job log can be written again");
  {
    const std::lock_guard lock(mutex_);
    log_ = commit_->log();
    failure_ = commit_->failure();
  }
  if (!actions.ok()) return;
  MeasureSpace();  // The coordinator's state has been read from the log, which does not record the free space.
  NoteStatus();
  LogInfo("the coordinator serves again");
  {
    const std::lock_guard lock(outbox_mutex_);
    serving_ = true;
  }
  Perform(*actions);
}

// --- Actions.

void Engine::PerformOne(const Action& action) {
  if (const auto* send = std::get_if<SendMessage>(&action)) {
    const std::lock_guard lock(outbox_mutex_);
    const auto outbox = outboxes_.find(send->connection);
    if (outbox != outboxes_.end()) outbox->second->Send(send->message, send->common);
  } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
    const std::lock_guard lock(outbox_mutex_);
    const auto outbox = outboxes_.find(close->connection);
    if (outbox != outboxes_.end()) outbox->second->Close();
  } else if (const auto* build = std::get_if<StartBuild>(&action)) {
    builds_->Add(build->job.str(), [this, request = *build](CancelSignal* cancel) { BuildJob(request, cancel); });
  } else if (const auto* optimize = std::get_if<StartOptimizing>(&action)) {
    const auto work = [this, request = *optimize](CancelSignal* cancel) { OptimizeJob(request, cancel); };
    builds_->Add(optimize->job.str(), work, /*is_urgent=*/false);
  } else if (const auto* stop = std::get_if<StopBuild>(&action)) {
    builds_->Cancel(stop->job.str());
  } else if (const auto* load = std::get_if<LoadPlan>(&action)) {
    Enqueue(&transfers_, [this, digest = load->executable_digest] {
      Post([digest, plan = PlanFor(digest)](CoordinatorCore& coordinator) { coordinator.OnPlanLoaded(digest, plan); });
    });
  } else if (const auto* index = std::get_if<StoreIndex>(&action)) {
    Store(*index);
  } else if (const auto* changed = std::get_if<JobChanged>(&action)) {
    if (spool_->Has(changed->job.str())) {
      Enqueue(&transfers_, [this, job = changed->job.str()] { RemoveBatchesIfEnded(job); });
    }
  } else if (const auto* old = std::get_if<DropCheckpoint>(&action)) {
    Drop(*old);
  } else if (const auto* again = std::get_if<DropCheckpointsAgain>(&action)) {
    Enqueue(&upkeep_, [this, uris = again->uris] {
      const std::lock_guard lock(collecting_);
      const absl::Status dropped = collector_->DropAgain(uris);
      if (!dropped.ok()) LogWarn("old blobs cannot be removed", {{"error", std::string(dropped.message())}});
    });
  } else if (const auto* removal = std::get_if<RemoveOldCheckpoints>(&action)) {
    folder_removals_.Push(FolderOfPath(removal->folder), [request = *removal] {
      const absl::Status removed = storage::RemoveObsoleteFolders(RealFileSystem(), request.folder, request.obsolete);
      if (removed.ok()) return;
      LogWarn("files that no checkpoint needs cannot be removed", {{"error", std::string(removed.message())}});
    });
  } else if (const auto* trace = std::get_if<KeepTrace>(&action)) {
    traces_->Add(trace->job.str(), trace->record);
    Enqueue(&transfers_, [this] { traces_->Flush(); });
  } else if (const auto* clean = std::get_if<CleanUp>(&action)) {
    Enqueue(&upkeep_, [this, request = *clean] { RemoveUnneededData(request); });
  }
}

std::string Engine::FolderOfUri(const std::string& uri) {
  const auto parsed = storage::ParseUri(uri);
  return parsed.ok() && parsed->scheme == storage::Uri::Scheme::kFile ? FolderOfPath(parsed->rest) : "";
}

void Engine::Store(const StoreIndex& request) {
  const auto store = [this, request] {
    Post([request, stored = WriteIndex(RealFileSystem(), request, blobs_.get())](CoordinatorCore& coordinator) {
      coordinator.OnIndexStored(request, stored);
    });
  };
  const auto root = storage::ParseUri(request.uri);
  if (root.ok() && root->scheme == storage::Uri::Scheme::kFile) return folder_writes_.Push(root->rest, store);
  Enqueue(&transfers_, store);
}

void Engine::Drop(const DropCheckpoint& request) {
  const auto remove = [this, request] { RemoveCheckpoint(request); };
  // The URI is "file:ROOT/JOB/CHECKPOINT" or that of a blob.
  const std::string folder = FolderOfUri(request.uri);
  if (!folder.empty()) return folder_removals_.Push(FolderOfPath(folder), remove);
  Enqueue(&upkeep_, remove);
}

void Engine::Perform(const Actions& actions) {
  for (const Action& action : actions) PerformOne(action);
  if (!actions.empty()) NotifyChange();
}

void Engine::NotifyChange() {
  const std::lock_guard lock(mutex_);
  ++changes_;
  changed_.notify_all();
  if (on_change_) on_change_();
}

void Engine::SetChangeListener(std::function<void()> on_change) {
  const std::lock_guard lock(mutex_);
  on_change_ = std::move(on_change);
}

bool Engine::WaitForChange(int64_t* seen) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return stopping_ || changes_ != *seen; });
  *seen = changes_;
  return !stopping_;
}

void Engine::Enqueue(Pool* pool, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  pool->work.push_back(std::move(work));
  pool->available.notify_one();
}

void Engine::RunPool(Pool* pool) {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      pool->available.wait(lock, [&] { return stopping_ || !pool->work.empty(); });
      if (stopping_) return;
      work = std::move(pool->work.front());
      pool->work.pop_front();
    }
    work();
  }
}

// --- Requests of clients.

std::string Engine::FolderOf(const std::string& job_id) const {
  return JoinPath(JoinPath(options_.data_folder, "jobs"), job_id);
}

JobStatus Engine::WithFolder(JobStatus status) const {
  status.set_directory(FolderOf(status.id()));
  return status;
}

absl::StatusOr<SubmitJobResponse> Engine::Submit(const SubmitJobRequest& request, const std::string& actor) {
  const absl::StatusOr<ResolvedResume> resume = Resolve(request.spec());
  const absl::StatusOr<std::shared_ptr<void>> hold = resume.ok() ? HoldBlobs(request.spec(), *resume) : resume.status();
  return Ask<SubmitJobResponse>([&](CoordinatorCore& coordinator) -> absl::StatusOr<SubmitJobResponse> {
    // If the client repeats a submission that was accepted, what the job needed may have been removed since then.
    const Job* const known = coordinator.context().jobs.FindByKey(request.client_key());
    if (!hold.ok() && known == nullptr) return hold.status();
    const ActingFor acting(&coordinator, actor);
    return coordinator.Submit(request, resume.value_or(ResolvedResume()));
  });
}

absl::Status Engine::Cancel(const std::string& job_id, const std::string& actor) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.Cancel(JobId(job_id)); }, actor);
}

absl::Status Engine::Resize(const ResizeJobRequest& request, const std::string& actor) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.Resize(request); }, actor);
}

absl::StatusOr<ListJobsResponse> Engine::ListJobs(const ListJobsRequest& request,
                                                  const std::function<bool(const Job&)>& shows) {
  ListJobsRequest page = request;
  if (page.with_time() && (page.limit() == 0 || page.limit() > kMaxTimedJobs)) page.set_limit(kMaxTimedJobs);
  XLAD_ASSIGN_OR_RETURN(ListJobsResponse response, Ask<ListJobsResponse>([&](CoordinatorCore& coordinator) {
                          return coordinator.jobs().List(page, shows);
                        }));
  for (JobStatus& status : *response.mutable_jobs()) {
    status.set_directory(FolderOf(status.id()));
    if (!page.with_time()) continue;
    const absl::StatusOr<std::vector<JobTime>> time = Time(status.id());
    // If the time cannot be read, the response lacks it.
    if (time.ok()) status.mutable_time()->Assign(time->begin(), time->end());
  }
  return response;
}

absl::StatusOr<JobStatus> Engine::GetJob(const std::string& job_id) {
  XLAD_ASSIGN_OR_RETURN(JobStatus status, Ask<JobStatus>([&](CoordinatorCore& coordinator) {
                          return coordinator.jobs().Status(JobId(job_id));
                        }));
  return WithFolder(std::move(status));
}

absl::StatusOr<std::vector<std::string>> Engine::ClientKeys(const std::vector<std::string>& job_ids) {
  using Keys = std::vector<std::string>;
  return Ask<Keys>([&](CoordinatorCore& coordinator) -> absl::StatusOr<Keys> {
    Keys keys;
    for (const std::string& id : job_ids) {
      const Job* const job = coordinator.context().jobs.Find(JobId(id));
      keys.push_back(job == nullptr ? "" : job->client_key);
    }
    return keys;
  });
}

absl::StatusOr<WhyJobResponse> Engine::Why(const std::string& job_id) {
  XLAD_ASSIGN_OR_RETURN(WhyJobResponse why, Ask<WhyJobResponse>([&](CoordinatorCore& coordinator) {
                          return coordinator.Why(JobId(job_id));
                        }));
  if (const auto time = Time(job_id); time.ok()) {
    why.mutable_time()->Assign(time->begin(), time->end());
    const std::string text = TimeText(*time);
    if (!text.empty()) why.set_text(absl::StrCat(why.text(), " Its time: ", text, "."));
  }
  if (const std::string batches = spool_->Why(job_id); !batches.empty()) {
    const std::string advice = absl::StrCat("if its client has ended, cancel the job (xlad cancel ", job_id,
                                            ") and continue with another job that resumes it");
    why.add_evidence(batches);
    why.add_advice(advice);
    why.set_text(absl::StrCat(why.text(), " Evidence: ", batches, ". What you can do: ", advice, "."));
  }
  return why;
}

absl::StatusOr<ListWorkersResponse> Engine::ListWorkers(const WorkerMachine::Shows& shows) {
  return Ask<ListWorkersResponse>([&](CoordinatorCore& coordinator) { return coordinator.workers().List(shows); });
}

absl::Status Engine::Drain(const std::string& worker_id, const std::string& actor) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.Drain(WorkerId(worker_id)); }, actor);
}

absl::Status Engine::Undrain(const std::string& worker_id, const std::string& actor) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.Undrain(WorkerId(worker_id)); }, actor);
}

CoordinatorStatus Engine::Status() {
  CoordinatorStatus status;
  {
    const std::lock_guard lock(mutex_);
    status = status_;
    status.set_serving(log_ != nullptr);
    status.set_builds_not_isolated(not_isolated_);
    if (log_ == nullptr) status.set_reason(std::string(failure_.message()));
  }
  status.set_pid(getpid());
  status.set_host(HostName());
  status.set_version(XLAD_VERSION);
  status.set_started_unix_ns(started_unix_ns_);
  status.set_data_folder(options_.data_folder);
  return status;
}

absl::StatusOr<std::shared_ptr<JobLog>> Engine::ReadableLog() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Stopping();
  if (log_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("the job log cannot be read: ", failure_.message()));
  }
  return log_;
}

absl::StatusOr<JobLogResponse> Engine::Log(const JobLogRequest& request) {
  XLAD_RETURN_IF_ERROR(GetJob(request.job_id()).status());
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<JobLog> log, ReadableLog());
  const int64_t limit = request.limit() > 0 ? std::min<int64_t>(request.limit(), kMaxEventsPerPage) : kMaxEventsPerPage;
  XLAD_ASSIGN_OR_RETURN(std::vector<JobEvent> events,
                        log->ReadEventsOf(JobId(request.job_id()), request.after_sequence(), limit + 1));
  JobLogResponse response;
  response.set_more(std::ssize(events) > limit);
  if (response.more()) events.pop_back();
  for (const JobEvent& event : events) *response.add_events() = ForClients(event);
  return response;
}

absl::StatusOr<std::vector<JobTime>> Engine::Time(const std::string& job_id) {
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<JobLog> log, ReadableLog());
  return goodput_.Measure(*log, JobId(job_id), RealClock().WallNs());
}

absl::StatusOr<std::string> Engine::Trace(const std::string& job_id) {
  XLAD_RETURN_IF_ERROR(GetJob(job_id).status());
  return traces_->Read(job_id);
}

absl::StatusOr<WatchJobResponse> Engine::Watch(const WatchJobRequest& request) {
  // The status is read before the metrics, so the metrics include every step of a job that has ended.
  XLAD_ASSIGN_OR_RETURN(JobStatus status, GetJob(request.job_id()));
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<JobLog> log, ReadableLog());
  XLAD_ASSIGN_OR_RETURN(const auto metrics,
                        log->ReadMetrics(JobId(request.job_id()), request.from_step(), kMetricsPerUpdate));
  WatchJobResponse response;
  status.clear_checkpoints();
  *response.mutable_status() = std::move(status);
  for (const StepMetrics& step : metrics) *response.add_metrics() = step;
  return response;
}

// --- Workers.

ConnectionId Engine::Attach(Outbox* outbox) {
  const std::lock_guard lock(outbox_mutex_);
  const ConnectionId connection(next_connection_++);
  outboxes_[connection] = outbox;
  if (!serving_) outbox->Close();
  return connection;
}

void Engine::OnMessage(ConnectionId connection, const WorkerMessage& message) {
  {
    std::unique_lock lock(mutex_);
    accepted_.wait(lock, [&] { return stopping_ || queue_.size() < kMaxQueuedEvents; });
  }
  Post([connection, message](CoordinatorCore& coordinator) { coordinator.OnWorkerMessage(connection, message); });
}

bool Engine::OnHeartbeat(ConnectionId connection, const WorkerMessage& message) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || queue_.size() >= kMaxQueuedEvents) return false;
  queue_.push_back(
      {[connection, message](CoordinatorCore& coordinator) { coordinator.OnWorkerMessage(connection, message); },
       nullptr});
  return true;
}

void Engine::Detach(ConnectionId connection, const std::string& why) {
  {
    const std::lock_guard lock(outbox_mutex_);
    outboxes_.erase(connection);
  }
  Post([connection, why](CoordinatorCore& coordinator) { coordinator.OnWorkerGone(connection, why); });
}

}  // namespace xlad::service
