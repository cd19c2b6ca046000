// The engine's work with blobs: builds, executables, checkpoints and the state of jobs.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "base/log.h"
#include "base/process/build_id.h"
#include "service/access.h"
#include "service/engine.h"
#include "service/new_code.h"
#include "service/placement/device_mix.h"
#include "storage/job_uris.h"
#include "tensor/safetensors.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

// The niceness of builds of optimized code (setpriority(2)). If the steps of jobs use all cores, a thread of such a
// build gets about a third of the processor time of a thread of a step.
constexpr int kOptimizingNice = 5;

// How often the call of a client that waits for a build checks whether the client is still there.
constexpr std::chrono::milliseconds kCheckInterval{200};

// Checks that the checkpoint has every state parameter of the job, in its shape or as the bytes of that shape. Workers
// could not load any other checkpoint.
absl::Status CheckTensors(const JobSpec& spec, const CheckpointIndex& index, const std::string& uri) {
  absl::flat_hash_map<absl::string_view, const ArrayShape*> shapes;
  for (const CheckpointTensor& tensor : index.tensors()) shapes[tensor.name()] = &tensor.shape();
  for (const JobSpec::Parameter& parameter : spec.parameters()) {
    if (parameter.kind() != JobSpec::Parameter::STATE) continue;
    const auto found = shapes.find(parameter.name());
    const tensor::Shape shape = tensor::ShapeFromWire(parameter.shape());
    std::string difference = "no such tensor";
    if (found != shapes.end()) {
      const tensor::Shape stored = tensor::ShapeFromWire(*found->second);
      if (stored == shape || tensor::IsStoredAsBytes(stored, shape)) continue;
      difference = absl::StrCat("a tensor of shape ", stored.ToString());
    }
    return absl::InvalidArgumentError(absl::StrCat("resume: ", uri, ": found ", difference, " for the state parameter ",
                                                   parameter.name(), " of shape ", shape.ToString(),
                                                   ", expected a checkpoint of the same model"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Executable> ParseExecutable(const std::string& digest, const std::string& bytes) {
  Executable executable;
  if (!executable.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("executable ", digest, " cannot be read"));
  }
  return executable;
}

absl::StatusOr<PlannedProgram> PlanProgram(const Executable& executable, int64_t devices) {
  PlannedProgram program;
  program.target = executable.target();
  XLAD_ASSIGN_OR_RETURN(program.plans, PlanCollectives(executable, devices));
  XLAD_ASSIGN_OR_RETURN(program.old_plans, PlansForOldWorkers(executable, devices, program.plans));
  return program;
}

}  // namespace

absl::StatusOr<Executable> Engine::LoadExecutable(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, blobs_->Get(digest));
  return ParseExecutable(digest, bytes);
}

absl::StatusOr<PlannedProgram> Engine::PlanFor(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const Executable executable, LoadExecutable(digest));
  return PlanProgram(executable, DeviceCount(executable.mesh()));
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

absl::StatusOr<std::string> Engine::ReadHeader(const std::string& uri) {
  if (uri.empty() || uri == storage::kStreamUri) return std::string();
  return ReadAt<std::string>(uri, [this, uri]() -> absl::StatusOr<std::string> {
    XLAD_ASSIGN_OR_RETURN(const auto source, OpenStore().OpenTensors(uri));
    return source->Header();
  });
}

absl::StatusOr<CheckpointIndex> Engine::ReadIndex(const std::string& uri) {
  return ReadAt<CheckpointIndex>(uri, [this, uri] { return OpenStore().ReadIndex(uri); });
}

absl::StatusOr<BuiltProgram> Engine::BuildProgram(const StartBuild& request, const ChildLimits& limits,
                                                  const Executable* quick) {
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
  build.set_quick(request.quick);
  XLAD_ASSIGN_OR_RETURN(BuiltProgram built, RunBuild(build, request.job.str(), limits));
  // RunBuild has just stored the executables, so the program is not the cause if the file of one cannot be read.
  const auto load = [this](const std::string& digest) -> absl::StatusOr<Executable> {
    const absl::StatusOr<std::string> bytes = blobs_->Get(digest);
    if (!bytes.ok()) return absl::UnavailableError(bytes.status().message());
    return ParseExecutable(digest, *bytes);
  };
  XLAD_ASSIGN_OR_RETURN(const Executable executable, load(built.executable_digest));
  XLAD_RETURN_IF_ERROR(CheckCompiledFor(executable, request.targets[0]));
  if (quick != nullptr) XLAD_RETURN_IF_ERROR(CheckReplaces(*quick, executable));
  for (const BuiltExecutable& built_other : built.others) {
    XLAD_ASSIGN_OR_RETURN(const Executable other, load(built_other.digest()));
    XLAD_RETURN_IF_ERROR(CheckCompiledFor(other, built_other.target()));
    XLAD_RETURN_IF_ERROR(CheckSameProgram(executable, other));
  }
  built.quick = executable.quick();
  built.compiler = BuildId(options_.program_path);
  XLAD_ASSIGN_OR_RETURN(built.plan, PlanProgram(executable, DeviceCount(request.mesh)));
  built.batch_axes = BatchAxes(executable, build.spec(), request.mesh);
  return built;
}

// Users have different folders, because a malicious program that takes over the process of its build can add any code
// (BuildInChild).
std::optional<storage::EntryFolder> Engine::ObjectsFor(const std::string& user) const {
  if (options_.cache_folder.empty()) return std::nullopt;
  const std::string name = user.empty() ? "own" : absl::StrCat("@", user);
  return storage::EntryFolder(&RealFileSystem(), {JoinPath(JoinPath(options_.cache_folder, "kernels"), name),
                                                  BuildId(options_.program_path)});
}

// Takes the executable from the cache or builds it. Writes the partitioned program to the job's folder for inspection.
absl::StatusOr<BuiltProgram> Engine::RunBuild(const BuildRequest& build, const std::string& job_id,
                                              const ChildLimits& limits) {
  const std::string folder = FolderOf(job_id);
  // The job does not need what is kept in its folder.
  absl::Status kept = RealFileSystem().MakeDirectories(folder);
  XLAD_ASSIGN_OR_RETURN(const std::string user,
                        Ask<std::string>([&](CoordinatorCore& coordinator) -> absl::StatusOr<std::string> {
                          const Job* const job = coordinator.context().jobs.Find(JobId(job_id));
                          if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job_id));
                          return OwnerOfKey(job->client_key);
                        }));
  const int64_t start_ns = RealClock().NowNs();
  const auto build_in_child = [&](const BuildRequest& request) {
    std::optional<std::string> not_isolated;
    const std::optional<storage::EntryFolder> objects = ObjectsFor(user);
    auto response = BuildInChild(build_pool_, request, limits, &not_isolated,
                                 objects.has_value() ? &*objects : nullptr);
    if (not_isolated.has_value()) NoteIsolation(*not_isolated);  // Without a response, it is not known.
    return response;
  };
  const bool is_urgent = limits.nice == 0;
  XLAD_ASSIGN_OR_RETURN(const CachedBuild found, cache_.Get(build, user, build_in_child, is_urgent));
  BuiltProgram built;
  built.cached = found.cached;
  const BuildResponse& response = found.response;
  // A full disk, or a folder that cannot be written, does not come from the program, which can be built later.
  const auto put = [this](const std::string& executable, std::string* digest) {
    absl::StatusOr<std::string> stored = blobs_->Put(executable);
    if (!stored.ok()) return absl::UnavailableError(stored.status().message());
    *digest = *std::move(stored);
    return absl::OkStatus();
  };
  XLAD_RETURN_IF_ERROR(put(response.executable(), &built.executable_digest));
  if (response.other_executables_size() != build.other_targets_size()) {
    return absl::InternalError(absl::StrCat("found ", response.other_executables_size(),
                                            " further executables in the response of a build, expected ",
                                            build.other_targets_size()));
  }
  for (int t = 0; t < build.other_targets_size(); ++t) {
    BuiltExecutable& other = built.others.emplace_back();
    *other.mutable_target() = build.other_targets(t);
    XLAD_RETURN_IF_ERROR(put(response.other_executables(t), other.mutable_digest()));
  }
  built.warnings.assign(response.warnings().begin(), response.warnings().end());
  if (kept.ok()) {
    kept = RealFileSystem().WriteAtomically(JoinPath(folder, "partitioned.hlo"), response.partitioned_text());
  }
  if (!kept.ok()) {
    LogWarn("the partitioned program cannot be kept", {{"job", job_id}, {"error", std::string(kept.message())}});
  }
  built.compile_ms = built.cached ? 0 : static_cast<double>(RealClock().NowNs() - start_ns) / kNsPerMs;
  return built;
}

ChildLimits Engine::LimitsOf(CancelSignal* cancel) const {
  ChildLimits limits = options_.build_limits;
  limits.cancel = cancel;
  return limits;
}

void Engine::NoteIsolation(const std::string& not_isolated) {
  constexpr size_t kMaxReason = 500;
  const std::string reason = absl::CEscape(not_isolated.substr(0, kMaxReason));
  {
    const std::lock_guard lock(mutex_);
    const bool was_isolated = not_isolated_.empty();
    not_isolated_ = reason;
    if (reason.empty() || !was_isolated) return;
  }
  LogWarn(
      "builds are not isolated: a malicious program could take over the coordinator; use a kernel or container that "
      "allows Landlock and seccomp, or accept programs only from users that you trust",
      {{"missing", reason}});
}

absl::StatusOr<BuiltProgram> Engine::RunQueuedBuild(const std::string& job_id, const BuildRequest& build,
                                                    const Check& check) {
  // The queue drops a canceled build that has not started. The destructor of Result then sets the error.
  struct Result {
    std::promise<absl::StatusOr<BuiltProgram>> promise;
    bool is_set = false;
    void Set(absl::StatusOr<BuiltProgram> value) {
      is_set = true;
      promise.set_value(std::move(value));
    }
    ~Result() {
      if (!is_set) Set(absl::CancelledError("the build was canceled"));
    }
  };
  auto result = std::make_shared<Result>();
  auto future = result->promise.get_future();
  const int64_t number = builds_->Add(job_id, [this, job_id, build, result = std::move(result)](CancelSignal* cancel) {
    result->Set(RunBuild(build, job_id, LimitsOf(cancel)));
  });
  while (future.wait_for(kCheckInterval) != std::future_status::ready) {
    const absl::Status wanted = check();
    if (wanted.ok()) continue;
    builds_->CancelOne(number);
    return wanted;
  }
  return future.get();
}

void Engine::BuildJob(const StartBuild& request, CancelSignal* cancel) {
  const absl::StatusOr<BuiltProgram> built = BuildProgram(request, LimitsOf(cancel));
  if (cancel->raised()) return;  // The result of a canceled build is not used.
  Post([request, built](CoordinatorCore& coordinator) { coordinator.OnBuilt(request.job, request.mesh, built); });
}

absl::StatusOr<BuiltProgram> Engine::BuildOptimized(const StartOptimizing& request, const ChildLimits& limits) {
  XLAD_ASSIGN_OR_RETURN(const Executable quick, LoadExecutable(request.executable_digest));
  return BuildProgram({request.job, {quick.target()}, request.mesh, /*quick=*/false}, limits, &quick);
}

// The build has a low priority, because the job's first steps and builds for which jobs wait are more urgent.
void Engine::OptimizeJob(const StartOptimizing& request, CancelSignal* cancel) {
  ChildLimits limits = LimitsOf(cancel);
  limits.nice = kOptimizingNice;
  const absl::StatusOr<BuiltProgram> built = BuildOptimized(request, limits);
  if (cancel->raised()) return;
  Post([request, built](CoordinatorCore& coordinator) { coordinator.OnOptimized(request, built); });
}

absl::StatusOr<ResolvedResume> Engine::Resolve(const JobSpec& spec) {
  const std::string& resume = spec.resume();
  if (resume.empty()) return ResolvedResume();
  if (resume.find(':') == std::string::npos) {
    if (resume.find('/') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "resume: found \"", resume, "\", expected a job's id, or the URI of a checkpoint, such as file:/PATH"));
    }
    XLAD_ASSIGN_OR_RETURN(const ResolvedResume newest, Ask<ResolvedResume>([&](CoordinatorCore& coordinator) {
                            return coordinator.jobs().NewestCheckpoint(JobId(resume));
                          }));
    // If the checkpoint cannot be read now, the job is accepted unchecked and waits until it can be read.
    const absl::StatusOr<CheckpointIndex> index = ReadIndex(newest.uri);
    if (index.ok()) XLAD_RETURN_IF_ERROR(CheckTensors(spec, *index, newest.uri));
    return newest;
  }
  const absl::StatusOr<CheckpointIndex> index = ReadIndex(resume);
  if (absl::IsNotFound(index.status())) {
    return absl::NotFoundError(absl::StrCat(
        index.status().message(), "; expected the URI of a checkpoint: xlad ckpt ls lists those of a job or a folder"));
  }
  XLAD_RETURN_IF_ERROR(index.status());
  XLAD_RETURN_IF_ERROR(CheckTensors(spec, *index, resume));
  return ResolvedResume{resume, index->index_sha256(), index->step()};
}

}  // namespace xlad::service
