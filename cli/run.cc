#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "base/cache_folder.h"
#include "base/counted.h"
#include "base/log.h"
#include "base/random.h"
#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/devices.h"
#include "cli/flag_checks.h"
#include "cli/follow.h"
#include "cli/local_cluster.h"
#include "cli/profile.h"
#include "cli/recovery_flags.h"
#include "cli/run_launched.h"
#include "cli/tensor_flags.h"
#include "cli/transports.h"
#include "cli/tuned.h"
#include "proto/mesh.h"
#include "runtime/host_threads.h"
#include "storage/uri.h"

namespace xlad::cli {
namespace {

struct RunOptions {
  std::string directory, mesh, data_folder, cache;
  int64_t workers = 1, steps = -1;
  int threads = 0;
  std::string transport = "auto";
  bool any_network = false;
  DeviceRequests devices;
  HostsFlags hosts;
  FollowOptions follow;
  client::TensorUris tensors;
  RecoveryFlags recovery;
  CompileFlags compile;
  bool profile = false;
  ProfileOptions profiling;
};

// The job is submitted while its workers start, so kinds of its devices may be missing until the last worker registers.
constexpr int64_t kWorkersStartMs = 60'000;

// Whether `count` devices can run the job. In the canonical mode, a device runs one or more logical shards.
bool CanRun(const JobSpec& spec, int64_t count) {
  const int64_t shards = NumDevices(spec.mesh());
  return count >= shards || (count > 0 && spec.compile().reduction_mode() == CANONICAL && shards % count == 0);
}

// Each worker needs a device. If the flags state the number of devices, they may not ask for more workers. Otherwise,
// the number of devices follows from the mesh, and DealDevices starts fewer workers.
absl::Status CheckWorkers(const RunOptions& options) {
  const int64_t stated = CountDevices(options.devices);
  if (stated == 0 || options.workers <= stated) return absl::OkStatus();
  return WrongUsage(absl::InvalidArgumentError(
      absl::StrCat("--workers: found ", options.workers, ", expected at most ", stated,
                   ", because each worker needs one of the devices in --device ", DeviceFlagText(options.devices))));
}

// Completes the list of devices to start, and sets the devices that the job runs on: those of the first kind that has
// enough devices for its mesh, or those of all kinds together.
absl::Status ChooseDevices(DeviceRequests* devices, JobSpec* spec) {
  const int64_t needed = NumDevices(spec->mesh());
  CompleteDevices(devices, needed);
  XLAD_RETURN_IF_ERROR(CheckAvailable(*devices));
  const int64_t total = CountDevices(*devices);
  const runtime::DeviceRequest* enough = nullptr;
  for (const runtime::DeviceRequest& request : *devices) {
    if (enough == nullptr && CanRun(*spec, request.count)) enough = &request;
  }
  const bool is_canonical = spec->compile().reduction_mode() == CANONICAL;
  if (enough == nullptr && !CanRun(*spec, total)) {
    return WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--device: found ", DeviceFlagText(*devices), ", expected ", needed, " or more devices for mesh ",
                     MeshText(spec->mesh()), is_canonical ? absl::StrCat(", or a number that divides ", needed) : "")));
  }
  const int64_t used = std::min(enough == nullptr ? total : enough->count, needed);
  spec->set_device_name(enough == nullptr ? DeviceFlagText(*devices) : enough->Name());
  if (is_canonical) spec->set_devices(used);
  if (devices->size() > 1 && total > used) {
    absl::FPrintF(stderr, "xlad: the job runs on %d devices of the %d in --device %s: %s\n", used, total,
                  DeviceFlagText(*devices), enough == nullptr ? "the first of them" : enough->Name().c_str());
  }
  return absl::OkStatus();
}

// The number of cores for the devices of one worker, in proportion to its share of all devices.
int ThreadsOf(const RunOptions& options, const DeviceRequests& devices) {
  const int64_t count = CountDevices(devices), all = CountDevices(options.devices);
  const int64_t threads = options.threads > 0 ? options.threads : runtime::HostThreads();
  return static_cast<int>(std::max<int64_t>(1, threads * count / std::max<int64_t>(all, 1)));
}

// Whether a run that ends with this exit code keeps its folder. After a failure, the folder has the logs, and also the
// state if it could not be written to another place.
bool KeepsFolder(int code) { return code != kOk && code != kInterrupted && code != kMoved; }

// SIGTERM stops the job after a step if its checkpoints remain when this command has ended.
void DrainAtSigterm(const RunOptions& options, const client::Job& job, LocalCluster* cluster,
                    client::CoordinatorClient* client, FollowOptions* follow) {
  const std::string& to = job.spec.checkpoint().uri();
  const bool has_folder = !to.empty() && to != "xlad:";
  if (!has_folder && options.data_folder.empty()) return;
  follow->begin_drain = [cluster] { cluster->BeginDrain(); };
  follow->drained = [&options, has_folder, client](const JobStatus& status) {
    // Without this, the next `xlad run` with this folder would train the same job twice.
    if (!options.data_folder.empty()) client->Cancel(status.id()).IgnoreError();
    if (!status.has_checkpoint()) {
      std::fprintf(stderr, "xlad: %s had not begun its first step: run the command again\n", status.id().c_str());
      return;
    }
    const std::string from =
        has_folder ? status.checkpoint_uri() : absl::StrCat(status.id(), " --data ", options.data_folder);
    absl::FPrintF(stderr, "xlad: the state of step %d is saved; to continue, run the command again with --resume %s\n",
                  status.checkpoint_step(), from);
  };
}

// `launched` is null if no launcher has started this process with others. Otherwise this process is rank 0.
int RunOn(const RunOptions& options, const client::Job& job, const std::string& folder, LaunchedRun* launched) {
  StopRequested();
  KeepFilesPrivate();
  LocalClusterOptions cluster_options;
  cluster_options.data_folder = folder;
  cluster_options.cache_folder = CacheFolder(options.cache, UserCacheFolder());
  cluster_options.devices = runtime::DealDevices(options.devices, options.workers);
  cluster_options.threads = options.threads;
  cluster_options.coordinator.missing_kind_grace_ms = kWorkersStartMs;
  if (launched != nullptr) {
    cluster_options.listen = launched->ListenAddress();
    cluster_options.is_users_own = false;
    cluster_options.devices.resize(1);
    cluster_options.threads = ThreadsOf(options, cluster_options.devices[0]);
  }
  cluster_options.transport = options.transport;
  cluster_options.any_network = options.any_network;
  cluster_options.grace_ms = kRunDrainMs;
  if (const absl::Status status = RealFileSystem().MakeDirectories(folder); !status.ok()) return Fail(status);
  if (!LogToFile(JoinPath(folder, "coordinator.log"))) {
    return Fail(absl::InternalError(absl::StrCat("cannot write ", folder, "/coordinator.log")));
  }
  const auto cluster = LocalCluster::Start(cluster_options);
  if (!cluster.ok()) return Fail(cluster.status());
  if (launched != nullptr) {
    const absl::Status told = launched->PutCoordinator((*cluster)->Address(), folder);
    if (!told.ok()) return Fail(told);
  }
  const auto endpoint = (*cluster)->OwnEndpoint();
  if (!endpoint.ok()) return Fail(endpoint.status());
  const auto client = client::CoordinatorClient::Connect(*endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto id = (*client)->Submit(job, SystemRandom()->Hex(16));
  if (!id.ok()) return Fail(id.status());
  FollowOptions follow = options.follow;
  follow.cancel_on_stop = true;
  follow.data_folder = folder;
  const bool default_trace = follow.trace_path.empty() && !options.data_folder.empty();
  if (default_trace) follow.trace_path = JoinPath(folder, "trace.json");
  follow.check = [&] {
    (*cluster)->RotateLogs();
    return (*cluster)->ReplaceDeadWorkers();
  };
  DrainAtSigterm(options, job, cluster->get(), client->get(), &follow);
  const int code = FollowJob(**client, *id, job.spec, follow);
  if (code == kInterrupted && *StopRequested() == SIGTERM && !follow.begin_drain) {
    std::fprintf(stderr, "xlad: SIGTERM: the training is not kept, because the folder of this run is temporary; "
                         "--checkpoint-to file:/PATH or --data FOLDER keeps its state\n");
  }
  if (KeepsFolder(code)) {
    std::fprintf(stderr, "xlad: program: %s\nxlad: logs and the partitioned program: %s\n", job.program_path.c_str(),
                 folder.c_str());
  }
  if (code == kOk && !options.data_folder.empty()) {
    std::fprintf(stderr, "logs: %s/*.log\ntrace: %s\npartitioned program: %s/jobs/%s/partitioned.hlo\n", folder.c_str(),
                 follow.trace_path.c_str(), folder.c_str(), id->c_str());
  }
  (*cluster)->Drain(2000);
  return code;
}

int RunInFolder(const RunOptions& options, const client::Job& job, LaunchedRun* launched) {
  if (!options.data_folder.empty()) return RunOn(options, job, options.data_folder, launched);
  const auto temporary = TemporaryFolder();
  if (!temporary.ok()) return Fail(temporary.status());
  const std::string folder = JoinPath(*temporary, absl::StrCat("xlad-run-", getpid(), "-", SystemRandom()->Hex(3)));
  const int code = RunOn(options, job, folder, launched);
  std::error_code ignored;
  if (!KeepsFolder(code)) std::filesystem::remove_all(folder, ignored);
  return code;
}

// Runs one process of a launch.
int RunRank(const RunOptions& options, const client::Job& job, const collectives::Launch& launch) {
  const auto launched = LaunchedRun::Open(launch, options.hosts);
  if (!launched.ok()) return Fail(launched.status());
  const std::vector<DeviceRequests> devices = runtime::DealDevices(options.devices, launch.ranks);
  if (std::ssize(devices) < launch.ranks) {
    return Fail(WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("found ", launch.ranks, " ranks of ", launch.launcher, " for ", Counted(devices.size(), "device"),
                     ", expected a device for each rank"))));
  }
  if (launch.rank > 0) {
    const DeviceRequests& own = devices[launch.rank];
    return (*launched)->RunWorker({own, ThreadsOf(options, own), options.transport, options.any_network});
  }
  const int code = RunInFolder(options, job, launched->get());
  const absl::Status told = (*launched)->PutEnd(code);
  return told.ok() ? code : Fail(told);
}

// Makes the folder that a flag names, so that an invalid path is an error before the training, not after it.
absl::Status PrepareFolder(const char* flag, const std::string& path) {
  XLAD_RETURN_IF_ERROR(Annotate(RealFileSystem().MakeDirectories(path), flag));
  if (access(path.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(flag, ": cannot write to ", path));
}

absl::Status PrepareFolders(const RunOptions& options, const std::string& cache) {
  if (!options.cache.empty() && !cache.empty()) XLAD_RETURN_IF_ERROR(PrepareFolder("--cache", cache));
  const std::string& checkpoints = options.recovery.checkpoint_to;
  if (checkpoints.empty() || checkpoints == "xlad:") return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const storage::Uri uri, storage::ParseUri(checkpoints));
  return PrepareFolder("--checkpoint-to", uri.rest);
}

int RunRun(RunOptions options) {
  auto job = client::ReadJobDirectory(RealFileSystem(), options.directory, options.mesh, options.steps,
                                      options.tensors);
  if (!job.ok()) return Fail(job.status());
  auto policy = ReadCompileFlags(options.compile);
  if (!policy.ok()) return Fail(policy.status());
  *job->spec.mutable_compile() = *std::move(policy);
  job->spec.set_compile_tier(TierOf(options.compile));
  const std::string cache = CacheFolder(options.cache, UserCacheFolder());
  if (const absl::Status made = PrepareFolders(options, cache); !made.ok()) return Fail(made);
  job->spec.mutable_compile()->set_tuned_schedules(ReadTuned(cache));
  if (options.profile) {
    options.profiling.threads = options.threads;
    if (options.devices.size() > 1) {
      return Fail(WrongUsage(absl::InvalidArgumentError(
          absl::StrCat("--profile: found ", DeviceFlagText(options.devices), ", expected one kind of device"))));
    }
    if (!options.devices.empty()) options.profiling.device = options.devices[0];
    return RunProfile(*job, options.profiling);
  }
  const auto launch = LaunchOfRun(options.hosts);
  if (!launch.ok()) return Fail(launch.status());
  if (launch->has_value() && (*launch)->launcher == "MPICH" && options.transport == "mpi") {
    return Fail(WrongUsage(absl::InvalidArgumentError(
        "--transport mpi: found a launch by MPICH, expected mpirun of Open MPI: an attempt of a job is a process of "
        "its own, and MPICH admits only processes that it has started; use another transport, or mpirun.openmpi")));
  }
  if (launch->has_value()) {
    options.workers = (*launch)->ranks;
  } else if (const absl::Status checked = CheckWorkers(options); !checked.ok()) {
    return Fail(checked);
  }
  const absl::Status transport = CheckTransport(options.transport, options.workers);
  if (!transport.ok()) return Fail(transport);
  if (const absl::Status chosen = ChooseDevices(&options.devices, &job->spec); !chosen.ok()) return Fail(chosen);
  ApplyRecoveryFlags(options.recovery, &job->spec);
  // A folder of checkpoints remains when the coordinator of this command has ended, so it gets the final state too.
  job->spec.set_keep_final_state(!options.follow.state_path.empty() || !options.recovery.checkpoint_to.empty());
  if (launch->has_value()) return RunRank(options, *job, **launch);
  return RunInFolder(options, *job, nullptr);
}

}  // namespace

void AddRun(CLI::App& parent, Action* action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* app = parent.add_subcommand("run", "train a job directory on a local cluster that is started for it");
  app->footer(
      "Examples:\n"
      "  xlad run examples/spiral_mlp --mesh dp=4,tp=2 --workers 4\n"
      "  xlad run examples/spiral_mlp --steps 20 --curve curve.json --save-state state.safetensors\n"
      "  xlad run examples/spiral_mlp --mesh dp=8 --device opaque\n"
      "  xlad run examples/spiral_mlp --mesh dp=4,tp=2 --device cpu:6,opaque:2\n"
      "  xlad run examples/spiral_mlp --mesh dp=8 --mode canonical --devices 2\n"
      "  xlad run examples/spiral_mlp --steps 50 --profile\n"
      "  xlad run examples/spiral_mlp --executor op-by-op --check-numerics\n"
      "  mpirun -np 4 xlad run examples/spiral_mlp --mesh dp=4 --transport mpi");
  app->add_option("JOBDIR", options->directory, "job directory")->required()->check(NotEmpty());
  app->add_option("--mesh", options->mesh, "mesh axes and sizes, such as dp=4,tp=2; default: one device")
      ->check(MeshAxes());
  app->add_option("--workers", options->workers, "worker processes, with as equal numbers of devices as possible")
      ->capture_default_str()
      ->check(Between(1, 1024));
  AddDeviceFlags(app, &options->devices, "COUNT devices in total (default: those of the mesh); default KIND: cpu");
  AddThreadsFlag(app, &options->threads, "for all devices together");
  AddTransportFlags(app, &options->transport, &options->any_network);
  AddHostsFlags(app, &options->hosts);
  app->add_option("--steps", options->steps, "steps to train; default: as in the manifest")->check(AtLeast(0));
  app->add_option("--curve", options->follow.curve_path, "write losses, metrics and times to FILE (JSON)")
      ->check(OutputFile());
  app->add_option("--save-state", options->follow.state_path, "write the final state to FILE (safetensors)")
      ->check(OutputFile());
  app->add_option("--plot", options->follow.plot_path, "draw the loss into FILE (SVG)")->check(OutputFile());
  app->add_option("--trace", options->follow.trace_path,
                  "write the timeline of all devices to FILE (JSON for ui.perfetto.dev; docs/howto/trace.md)")
      ->check(OutputFile());
  app->add_flag("--chart", options->follow.chart, "draw the loss in the terminal at the end");
  AddTensorFlags(app, &options->tensors);
  AddRecoveryFlags(app, &options->recovery);
  AddCompileFlags(app, &options->compile);
  AddTierFlag(app, &options->compile);
  app->add_option("--cache", options->cache, kCacheHelp);
  app->add_option("--data", options->data_folder,
                  "keep the job, its checkpoints and timeline, logs and the partitioned program in this folder")
      ->check(NotEmpty());
  auto* const profile = app->add_flag("--profile", options->profile,
                                      "train in this process, and print the time of every kernel, its operations and "
                                      "bytes per second, and the fraction of this machine's peak rate");
  AddFormatFlag(app, &options->profiling.format);
  for (const char* other : {"--workers", "--curve", "--save-state", "--data", "--resume", "--checkpoint-every",
                            "--checkpoint-keep", "--checkpoint-to", "--plot", "--trace", "--meet"}) {
    profile->excludes(other);
  }
  app->callback([=] {
    const FollowOptions& follow = options->follow;
    CheckOutputsDiffer({{"--curve", follow.curve_path},
                        {"--save-state", follow.state_path},
                        {"--plot", follow.plot_path},
                        {"--trace", follow.trace_path}});
    *action = [=] { return RunRun(*options); };
  });
}

}  // namespace xlad::cli
