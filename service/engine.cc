#include "service/engine.h"

#include <chrono>

#include "base/log.h"
#include "storage/job_uris.h"
#include "storage/store.h"

namespace xlad::service {
namespace {

constexpr int kBackgroundThreads = 2;
constexpr auto kTick = std::chrono::milliseconds(100);

}  // namespace

Engine::Engine(const EngineOptions& options)
    : options_(options),
      random_(SystemRandom()),
      cache_({.folder = options.cache_folder, .compiler = CompilerVersion(options.program_path)}) {}

Engine::~Engine() { Stop(); }

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(options));
  XLAD_RETURN_IF_ERROR(engine->Recover());
  engine->threads_.emplace_back([e = engine.get()] { e->RunTicks(); });
  for (int t = 0; t < kBackgroundThreads; ++t)
    engine->threads_.emplace_back([e = engine.get()] { e->RunBackground(); });
  return engine;
}

absl::Status Engine::Recover() {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(JoinPath(options_.data_folder, "jobs")));
  XLAD_ASSIGN_OR_RETURN(log_, OpenSqliteJobLog(JoinPath(options_.data_folder, "jobs.sqlite")));
  XLAD_ASSIGN_OR_RETURN(BlobStore blobs, BlobStore::Open(RealFileSystem(), JoinPath(options_.data_folder, "blobs")));
  blobs_ = std::make_unique<BlobStore>(std::move(blobs));
  const auto load = [this](const std::string& digest) { return LoadExecutable(digest); };
  core_ = std::make_unique<CoordinatorCore>(
      options_.coordinator, CoordinatorCore::Environment{&RealClock(), random_.get(), log_.get(), load});
  Actions actions;
  XLAD_RETURN_IF_ERROR(core_->Recover(&actions));
  Perform(actions);
  return absl::OkStatus();
}

absl::StatusOr<Executable> Engine::LoadExecutable(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, blobs_->Get(digest));
  Executable executable;
  if (!executable.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("executable ", digest, " cannot be read"));
  }
  return executable;
}

void Engine::Stop() {
  arrays_.Stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [connection, outbox] : outboxes_) outbox->Close();
    NotifyChange();
    work_available_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Engine::PerformOne(const Action& action) {
  if (const auto* send = std::get_if<SendMessage>(&action)) {
    const auto outbox = outboxes_.find(send->connection);
    if (outbox != outboxes_.end()) outbox->second->Send(send->message);
  } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
    const auto outbox = outboxes_.find(close->connection);
    if (outbox != outboxes_.end()) outbox->second->Close();
  } else if (const auto* build = std::get_if<StartBuild>(&action)) {
    work_.push_back([this, request = *build] { BuildJob(request); });
    work_available_.notify_one();
  } else if (const auto* assemble = std::get_if<AssembleState>(&action)) {
    work_.push_back([this, request = *assemble] { Assemble(request); });
    work_available_.notify_one();
  } else if (const auto* store = std::get_if<StoreArray>(&action)) {
    const SessionEffects::StoredArray& stored = store->array;
    if (stored.expected) {
      arrays_.Expect(store->session_id, stored.array, stored.shape);
    } else {
      arrays_.Put(store->session_id, stored.array, stored.shape, stored.bytes);
    }
  } else if (const auto* drop = std::get_if<DropArrays>(&action)) {
    arrays_.Drop(drop->session_id, drop->arrays);
  } else if (const auto* changed = std::get_if<JobChanged>(&action)) {
    const auto job = core_->GetJob(changed->job_id);
    if (job.ok() && job->session() && HasEnded(job->state())) arrays_.End(changed->job_id, job->reason());
  }
}

void Engine::Perform(const Actions& actions) {
  for (const Action& action : actions) PerformOne(action);
  if (!actions.empty()) NotifyChange();
}

void Engine::NotifyChange() {
  changed_.notify_all();
  if (on_change_) on_change_();
}

void Engine::SetChangeListener(std::function<void()> on_change) {
  const std::lock_guard lock(mutex_);
  on_change_ = std::move(on_change);
}

void Engine::RunTicks() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Actions actions;
    core_->OnTick(&actions);
    Perform(actions);
    // Every notification of `changed_` wakes this thread, but the next tick happens only at `due`.
    const auto due = std::chrono::steady_clock::now() + kTick;
    while (!stopping_ && changed_.wait_until(lock, due) == std::cv_status::no_timeout) {
    }
  }
}

void Engine::RunBackground() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      work_available_.wait(lock, [&] { return stopping_ || !work_.empty(); });
      if (stopping_) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

std::string Engine::FolderOf(const std::string& job_id) const {
  return JoinPath(JoinPath(options_.data_folder, "jobs"), job_id);
}

JobStatus Engine::WithFolder(JobStatus status) const {
  status.set_directory(FolderOf(status.id()));
  return status;
}

absl::StatusOr<std::string> Engine::ReadHeader(const std::string& uri) const {
  if (uri.empty()) return std::string();
  const storage::Store store(RealFileSystem(), [this](const std::string& digest) { return blobs_->OpenBlob(digest); });
  XLAD_ASSIGN_OR_RETURN(const auto source, store.OpenTensors(uri));
  return source->Header();
}

absl::StatusOr<BuiltProgram> Engine::BuildProgram(const StartBuild& request) {
  BuildRequest build;
  {
    const std::lock_guard lock(mutex_);
    *build.mutable_spec() = core_->SpecOf(request.job_id);
  }
  XLAD_ASSIGN_OR_RETURN(*build.mutable_program(), blobs_->Get(build.spec().program_blob()));
  auto state = ReadHeader(storage::StateUri(build.spec()));
  if (!state.ok()) return Annotate(state.status(), "state");
  auto data = ReadHeader(storage::DataUri(build.spec()));
  if (!data.ok()) return Annotate(data.status(), "data");
  build.set_state_header(*std::move(state));
  build.set_data_header(*std::move(data));
  *build.mutable_target() = request.target;
  return RunBuild(build, FolderOf(request.job_id));
}

// Takes the executable from the cache or builds it. Writes the partitioned program to `folder` for inspection.
absl::StatusOr<BuiltProgram> Engine::RunBuild(const BuildRequest& build, const std::string& folder) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  const int64_t start_ns = RealClock().NowNs();
  XLAD_ASSIGN_OR_RETURN(const CachedBuild found, cache_.Get(build, [&](const BuildRequest& request) {
                          return BuildInChild(options_.program_path, request, options_.build_limits);
                        }));
  BuiltProgram built;
  built.cached = found.cached;
  const BuildResponse& response = found.response;
  XLAD_ASSIGN_OR_RETURN(built.executable_digest, blobs_->Put(response.executable()));
  built.warnings.assign(response.warnings().begin(), response.warnings().end());
  XLAD_RETURN_IF_ERROR(
      RealFileSystem().WriteAtomically(JoinPath(folder, "partitioned.hlo"), response.partitioned_text()));
  built.compile_ms = built.cached ? 0 : static_cast<double>(RealClock().NowNs() - start_ns) / kNsPerMs;
  return built;
}

void Engine::BuildJob(const StartBuild& request) {
  const absl::StatusOr<BuiltProgram> built = BuildProgram(request);
  WithCore([&](Actions* actions) {
    if (!stopping_) core_->OnBuilt(request.job_id, built, actions);
    return 0;
  });
}

void Engine::Assemble(const AssembleState& request) {
  JobSpec spec;
  {
    const std::lock_guard lock(mutex_);
    spec = core_->SpecOf(request.job_id);
  }
  absl::StatusOr<std::string> blob = assembly_.Assemble(request.job_id, request.attempt, request.step, spec);
  if (blob.ok()) blob = blobs_->Put(*blob);
  const bool done = WithCore([&](Actions* actions) { return core_->OnStateAssembled(request, blob, actions); });
  if (done) assembly_.Drop(request.job_id);
}

absl::StatusOr<SubmitJobResponse> Engine::Submit(const SubmitJobRequest& request) {
  for (const std::string& digest :
       {request.spec().program_blob(), request.spec().state_blob(), request.spec().data_blob()}) {
    if (digest.empty() && digest != request.spec().program_blob()) continue;
    if (!blobs_->Has(digest)) {
      return absl::FailedPreconditionError(absl::StrCat("found no blob ", digest, ", expected it to be uploaded"));
    }
  }
  return WithCore([&](Actions* actions) { return core_->Submit(request, actions); });
}

absl::Status Engine::Cancel(const std::string& job_id) {
  return WithCore([&](Actions* actions) { return core_->Cancel(job_id, actions); });
}

ListJobsResponse Engine::ListJobs() {
  const std::lock_guard lock(mutex_);
  ListJobsResponse response;
  for (JobStatus& status : core_->ListJobs()) *response.add_jobs() = WithFolder(std::move(status));
  return response;
}

absl::StatusOr<JobStatus> Engine::GetJob(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  XLAD_ASSIGN_OR_RETURN(JobStatus status, core_->GetJob(job_id));
  return WithFolder(std::move(status));
}

ListWorkersResponse Engine::ListWorkers() {
  const std::lock_guard lock(mutex_);
  return core_->ListWorkers();
}

absl::StatusOr<JobLogResponse> Engine::Log(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  XLAD_RETURN_IF_ERROR(core_->GetJob(job_id).status());
  XLAD_ASSIGN_OR_RETURN(const std::vector<JobEvent> events, log_->ReadEvents());
  JobLogResponse response;
  for (const JobEvent& event : events) {
    if (event.job_id() != job_id) continue;
    JobLogResponse::Event* out = response.add_events();
    out->set_sequence(event.sequence());
    out->set_unix_ns(event.unix_ns());
    out->set_text(Describe(event));
  }
  return response;
}

absl::StatusOr<WatchJobResponse> Engine::Watch(const WatchJobRequest& request) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("the coordinator is stopping");
  XLAD_ASSIGN_OR_RETURN(JobStatus status, core_->GetJob(request.job_id()));
  XLAD_ASSIGN_OR_RETURN(const auto metrics,
                        log_->ReadMetrics(request.job_id(), request.from_step(), kMetricsPerUpdate));
  WatchJobResponse response;
  *response.mutable_status() = WithFolder(std::move(status));
  for (const StepMetrics& step : metrics) *response.add_metrics() = step;
  return response;
}

ConnectionId Engine::Attach(Outbox* outbox) {
  const std::lock_guard lock(mutex_);
  const ConnectionId connection = next_connection_++;
  outboxes_[connection] = outbox;
  if (stopping_) outbox->Close();
  return connection;
}

void Engine::OnMessage(ConnectionId connection, const WorkerMessage& message) {
  WithCore([&](Actions* actions) {
    if (!stopping_) core_->OnWorkerMessage(connection, message, actions);
    return 0;
  });
}

void Engine::Detach(ConnectionId connection) {
  WithCore([&](Actions* actions) {
    outboxes_.erase(connection);
    if (!stopping_) core_->OnWorkerGone(connection, actions);
    return 0;
  });
}

absl::Status Engine::PutStateShard(const PutStateShardRequest& header, std::string bytes) {
  return assembly_.Add(header, std::move(bytes));
}

}  // namespace xlad::service
