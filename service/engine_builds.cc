// The engine's work with blobs: builds, executables, checkpoints and the state of jobs.
#include "service/engine.h"
#include "service/placement/device_mix.h"
#include "storage/checkpoint_folder.h"
#include "storage/checkpoint_index.h"
#include "storage/checkpoint_shard.h"
#include "storage/job_uris.h"
#include "storage/uri.h"

namespace xlad::service {
absl::StatusOr<Executable> Engine::LoadExecutable(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, blobs_->Get(digest));
  Executable executable;
  if (!executable.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("executable ", digest, " cannot be read"));
  }
  return executable;
}

absl::StatusOr<PlannedProgram> Engine::PlanFor(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const Executable executable, LoadExecutable(digest));
  PlannedProgram plan;
  plan.target = executable.target();
  XLAD_ASSIGN_OR_RETURN(plan.plans, PlanCollectives(executable, DeviceCount(executable.mesh())));
  return plan;
}

absl::StatusOr<JobSpec> Engine::SpecOf(const JobId& id) {
  return Ask<JobSpec>([&](CoordinatorCore& coordinator) -> absl::StatusOr<JobSpec> {
    const Job* job = coordinator.context().jobs.Find(id);
    if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", id.str()));
    return job->spec;
  });
}

storage::Store Engine::OpenStore() const {
  return storage::Store(RealFileSystem(), [this](const std::string& digest) { return blobs_->OpenBlob(digest); });
}

absl::StatusOr<std::string> Engine::ReadHeader(const std::string& uri) const {
  if (uri.empty() || uri == storage::kStreamUri) return std::string();
  XLAD_ASSIGN_OR_RETURN(const auto source, OpenStore().OpenTensors(uri));
  return source->Header();
}

absl::StatusOr<BuiltProgram> Engine::BuildProgram(const StartBuild& request, CancelSignal* cancel) {
  BuildRequest build;
  XLAD_ASSIGN_OR_RETURN(*build.mutable_spec(), SpecOf(request.job));
  *build.mutable_spec()->mutable_mesh() = request.mesh;
  XLAD_ASSIGN_OR_RETURN(*build.mutable_program(), blobs_->Get(build.spec().program_blob()));
  auto state = ReadHeader(storage::StateUri(build.spec()));
  if (!state.ok()) return Annotate(state.status(), "state.safetensors");
  auto data = ReadHeader(storage::DataUri(build.spec()));
  if (!data.ok()) return Annotate(data.status(), "data.safetensors");
  build.set_state_header(*std::move(state));
  build.set_data_header(*std::move(data));
  *build.mutable_target() = request.targets[0];
  for (size_t t = 1; t < request.targets.size(); ++t) *build.add_other_targets() = request.targets[t];
  XLAD_ASSIGN_OR_RETURN(BuiltProgram built, RunBuild(build, FolderOf(request.job.str()), cancel));
  XLAD_ASSIGN_OR_RETURN(const Executable executable, LoadExecutable(built.executable_digest));
  XLAD_RETURN_IF_ERROR(CheckCompiledFor(executable, request.targets[0]));
  for (const BuiltExecutable& built_other : built.others) {
    XLAD_ASSIGN_OR_RETURN(const Executable other, LoadExecutable(built_other.digest()));
    XLAD_RETURN_IF_ERROR(CheckCompiledFor(other, built_other.target()));
    XLAD_RETURN_IF_ERROR(CheckSameProgram(executable, other));
  }
  built.plan.target = executable.target();
  XLAD_ASSIGN_OR_RETURN(built.plan.plans, PlanCollectives(executable, DeviceCount(request.mesh)));
  built.batch_axes = BatchAxes(executable, build.spec(), request.mesh);
  return built;
}

// Takes the executable from the cache or builds it. Writes the partitioned program to `folder` for inspection.
absl::StatusOr<BuiltProgram> Engine::RunBuild(const BuildRequest& build, const std::string& folder,
                                              CancelSignal* cancel) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  const int64_t start_ns = RealClock().NowNs();
  ChildLimits limits = options_.build_limits;
  limits.cancel = cancel;
  XLAD_ASSIGN_OR_RETURN(const CachedBuild found, cache_.Get(build, [&](const BuildRequest& request) {
                          return BuildInChild(options_.program_path, request, limits);
                        }));
  BuiltProgram built;
  built.cached = found.cached;
  const BuildResponse& response = found.response;
  XLAD_ASSIGN_OR_RETURN(built.executable_digest, blobs_->Put(response.executable()));
  if (response.other_executables_size() != build.other_targets_size()) {
    return absl::InternalError(absl::StrCat("found ", response.other_executables_size(),
                                            " further executables in the response of a build, expected ",
                                            build.other_targets_size()));
  }
  for (int t = 0; t < build.other_targets_size(); ++t) {
    BuiltExecutable& other = built.others.emplace_back();
    *other.mutable_target() = build.other_targets(t);
    XLAD_ASSIGN_OR_RETURN(*other.mutable_digest(), blobs_->Put(response.other_executables(t)));
  }
  built.warnings.assign(response.warnings().begin(), response.warnings().end());
  XLAD_RETURN_IF_ERROR(
      RealFileSystem().WriteAtomically(JoinPath(folder, "partitioned.hlo"), response.partitioned_text()));
  built.compile_ms = built.cached ? 0 : static_cast<double>(RealClock().NowNs() - start_ns) / kNsPerMs;
  return built;
}

absl::StatusOr<BuiltProgram> Engine::RunQueuedBuild(const std::string& job_id, const BuildRequest& build) {
  // The queue drops builds that wait when they are cancelled: the destructor tells the caller.
  struct Result {
    std::promise<absl::StatusOr<BuiltProgram>> promise;
    bool is_set = false;
    void Set(absl::StatusOr<BuiltProgram> value) {
      is_set = true;
      promise.set_value(std::move(value));
    }
    ~Result() {
      if (!is_set) Set(absl::CancelledError("the build was cancelled"));
    }
  };
  auto result = std::make_shared<Result>();
  auto future = result->promise.get_future();
  builds_->Add(job_id, [this, job_id, build, result = std::move(result)](CancelSignal* cancel) {
    result->Set(RunBuild(build, FolderOf(job_id), cancel));
  });
  return future.get();
}

void Engine::BuildJob(const StartBuild& request, CancelSignal* cancel) {
  const absl::StatusOr<BuiltProgram> built = BuildProgram(request, cancel);
  // The result of a cancelled build is not used. If the coordinator has stopped serving, it builds again later.
  if (cancel->raised() || absl::IsUnavailable(built.status())) return;
  Post([request, built](CoordinatorCore& coordinator) { coordinator.OnBuilt(request.job, request.mesh, built); });
}

// The index goes into the blobs, and beside its shards if these are files.
absl::StatusOr<Checkpoint> Engine::WriteIndex(const StoreIndex& request) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, storage::SerializeIndex(request.index));
  Checkpoint stored;
  stored.step = request.index.step();
  XLAD_ASSIGN_OR_RETURN(stored.digest, blobs_->Put(text));
  stored.uri = storage::BlobUri(stored.digest);
  for (const CheckpointShard& shard : request.index.shards()) {
    const auto uri = storage::ParseUri(shard.uri());
    if (!uri.ok() || uri->scheme != storage::Uri::Scheme::kBlob || blobs_->Has(uri->rest)) continue;
    return absl::DataLossError(absl::StrCat("found no blob ", uri->rest, ", a shard that a worker has written"));
  }
  if (request.uri.empty() || request.uri == "xlad:") return stored;
  XLAD_ASSIGN_OR_RETURN(const storage::Uri root, storage::ParseUri(request.uri));
  const std::string folder = storage::CheckpointFolder(
      root.rest, {request.attempt.job.str(), request.attempt.number, request.index.step()});
  XLAD_RETURN_IF_ERROR(storage::WriteIndexFile(RealFileSystem(), folder, request.index));
  stored.uri = storage::FileUri(folder);
  return stored;
}

absl::StatusOr<ResolvedResume> Engine::Resolve(const std::string& resume) {
  if (resume.empty()) return ResolvedResume();
  if (resume.find(':') == std::string::npos) {
    return Ask<ResolvedResume>([&](CoordinatorCore& coordinator) {
      return coordinator.jobs().NewestCheckpoint(JobId(resume));
    });
  }
  XLAD_ASSIGN_OR_RETURN(const CheckpointIndex index, OpenStore().ReadIndex(resume));
  return ResolvedResume{resume, index.index_sha256(), index.step()};
}

}  // namespace xlad::service
