#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/process/child_process.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/flag_checks.h"
#include "cli/transports.h"
#include "collectives/exec/bootstrap/cluster_place.h"
#include "runtime/devices/registry/registry.h"
#include "storage/host_cache.h"
#include "worker/worker_main.h"

namespace xlad::cli {
namespace {

struct WorkerFlags {
  worker::WorkerOptions options;
  bool coordinator_given = false;  // By a flag, a variable or a file.
  bool dry_run = false;
};

// An indexed Job of Kubernetes does not replace a pod whose exit code is 0, because its index counts as complete. A pod
// that is moved to another node must be replaced even if its worker was idle.
bool IsInIndexedJob() { return std::getenv("JOB_COMPLETION_INDEX") != nullptr; }

int RunWorkerCommand(WorkerFlags flags) {
  worker::WorkerOptions& options = flags.options;
  absl::StatusOr<std::optional<collectives::Launch>> launch(std::nullopt);
  // A worker with a coordinator and an id needs no launcher. Example: the workers of `xlad up` in a batch script of
  // Slurm.
  const bool is_placed = flags.coordinator_given && !options.worker_id.empty();
  if (!is_placed || flags.dry_run) launch = collectives::DetectLaunch();
  if (!launch.ok()) return Fail(launch.status());
  const auto place = collectives::PlaceInCluster(*launch, flags.coordinator_given ? options.coordinator.address : "",
                                                 options.worker_id);
  if (!place.ok()) return Fail(place.status());
  if (flags.dry_run) {
    std::printf("%s\n", collectives::PlaceToJson(*launch, *place).c_str());
    return kOk;
  }
  KeepFilesPrivate();
  options.coordinator.address = place->coordinator;
  options.worker_id = place->worker_id;
  if (options.cache_folder == "off") options.cache_folder.clear();
  CompleteDevices(&options.devices, 1);
  const auto end = worker::RunWorker(options, runtime::AllDeviceKinds(), StopRequested());
  if (!end.ok()) return Fail(end.status());
  return *end == worker::WorkerEnd::kWorkMoved || IsInIndexedJob() ? kMoved : kOk;
}

}  // namespace

void AddWorker(CLI::App& parent, Action* action) {
  auto flags = std::make_shared<WorkerFlags>();
  worker::WorkerOptions* const options = &flags->options;
  options->program_path = kOwnProgram;
  options->version = XLAD_VERSION;
  options->cache_folder = storage::HostCache::DefaultFolder();
  CLI::App* app = parent.add_subcommand("worker", "run a worker daemon");
  app->footer(
      "Examples:\n  xlad worker --coordinator 127.0.0.1:7411 --devices 2\n"
      "  xlad worker --coordinator 127.0.0.1:7411 --device opaque:2\n"
      "  srun -n 4 xlad worker --dry-run\n"
      "Started by srun, mpirun, torchrun or Kubernetes, a worker takes the coordinator's host and its own id from the\n"
      "launcher's variables, unless flags set them (docs/reference/launchers.md).\n"
      "SIGTERM drains the worker: its jobs stop after a step and save their state. The exit code is 75 if they\n"
      "continue on other workers, and 0 if the worker was idle. In an indexed Job of Kubernetes, it is always 75, so\n"
      "that the pod is replaced. A second SIGTERM ends the worker at once.");
  AddDeviceFlags(app, &options->devices, "COUNT (default: 1) devices of this worker; default KIND: cpu");
  app->add_option("--listen", options->listen,
                  "HOST or HOST:PORT on which peers connect, where HOST may be an interface, such as eth0; connections "
                  "are encrypted unless it is on loopback; default: the address from which this machine reaches the "
                  "coordinator")
      ->transform(InterfaceAddress())
      ->check(HostOrAddress());
  app->add_option("--advertise", options->advertise, kAdvertiseHelp)->transform(InterfaceAddress())->check(Host());
  app->add_option("--id", options->worker_id, "name of this worker; default: a random one");
  AddThreadsFlag(app, &options->threads, "for all devices of this worker");
  app->add_option("--grace-ms", options->grace_ms, "how long draining may take")
      ->capture_default_str()
      ->check(MillisecondsFrom(1));
  app->add_option("--progress-limit-ms", options->progress_limit_ms,
                  "a task fails if its collective makes no progress for this long; 0: no limit")
      ->envname("XLAD_PROGRESS_LIMIT_MS")
      ->capture_default_str()
      ->check(MillisecondsFrom(0));
  app->add_option("--memory-limit", options->memory_limit_bytes,
                  "memory that each attempt may use, in bytes or as 500MB or 2GB; 0: no limit")
      ->transform(ByteSize())
      ->capture_default_str();
  app->add_option("--idle-attempt", options->keep_idle_attempt,
                  "keep a process ready for the next attempt, so that it starts sooner")
      ->capture_default_str();
  app->add_option("--cache", options->cache_folder,
                  "folder in which the workers of this host share blobs that they have read; off: none")
      ->capture_default_str();
  app->add_option("--cache-size", options->cache_bytes, "disk space for the cache, in bytes or as 500MB or 2GB")
      ->transform(ByteSize())
      ->capture_default_str();
  app->add_option("--ready-file", options->ready_file,
                  "a file that exists while this worker is registered with the coordinator")
      ->check(OutputFile());
  AddTransportFlags(app, &options->transport, &options->any_network);
  app->add_option_function<double>(
         "--test-clock-offset-ms",
         [options](double ms) { options->clock_skew.offset_ns = std::llround(ms * static_cast<double>(kNsPerMs)); },
         "for tests: the time by which this worker's clock is ahead")
      ->group("");
  app->add_option("--test-clock-ppm", options->clock_skew.ppm,
                  "for tests: this worker's clock is too fast by this many millionths")
      ->group("");
  app->add_flag("--dry-run", flags->dry_run, "print the launcher that was found and the settings from it, and exit");
  AddEndpointFlags(app, &options->coordinator, UseOwnJoinFile::kNo);
  app->callback([=] {
    flags->coordinator_given = app->count("--coordinator") > 0 || app->count("--join") > 0;
    *action = [=] { return RunWorkerCommand(*flags); };
  });
}

}  // namespace xlad::cli
