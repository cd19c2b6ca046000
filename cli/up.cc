#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "base/cache_folder.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/coordinator_flags.h"
#include "cli/devices.h"
#include "cli/flag_checks.h"
#include "cli/local_cluster.h"

namespace xlad::cli {
namespace {

constexpr int64_t kDefaultDevices = 2;
constexpr int64_t kGraceMs = 20'000;
constexpr int64_t kParentsGraceMs = 2'000;  // Short, because jobs of a cluster with --parent are not resumed.

struct UpOptions {
  LocalClusterOptions cluster;
  CoordinatorFlags coordinator;
  std::string cache;
  int64_t workers = 0;               // 0 if --workers is not given.
  std::vector<int64_t> cpu_devices;  // --devices: one number per worker, or one for all workers.
  DeviceRequests devices;            // --device: the devices of each worker.
  pid_t parent = 0;  // 0 if --parent is not given.
  bool remove_data = false;
};

int RunCluster(const UpOptions& options) {
  KeepFilesPrivate();
  std::atomic<int>* stop = StopRequested();
  // If the parent has died, this process has another parent. The parent may have died before this function is called.
  const auto abandoned = [&] { return options.parent != 0 && getppid() != options.parent; };
  if (abandoned()) return kOk;
  const auto cluster = LocalCluster::Start(options.cluster);
  if (!cluster.ok()) return Fail(cluster.status());
  if (options.parent != 0) {
    std::printf("%s\n", (*cluster)->Address().c_str());
    std::fflush(stdout);
  }
  std::fprintf(stderr, "xlad is up at %s with %s; try: xlad ps --coordinator %s\n", (*cluster)->Address().c_str(),
               Counted(std::ssize(options.cluster.devices), "worker").c_str(), (*cluster)->Address().c_str());
  if (!options.cluster.http.empty()) {
    std::fprintf(stderr, "metrics and dashboard: http://%s/\n", (*cluster)->HttpAddress().c_str());
  }
  while (*stop == 0 && !abandoned()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    (*cluster)->ReplaceDeadWorkers().IgnoreError();  // The error was logged; the next call tries again.
    (*cluster)->RotateLogs();
  }
  LogInfo("draining");
  const bool moved = (*cluster)->Drain(options.parent != 0 ? kParentsGraceMs : kGraceMs);
  return moved && *stop == SIGTERM && options.parent == 0 && !options.remove_data ? kMoved : kOk;
}

// The devices of each worker.
absl::StatusOr<std::vector<DeviceRequests>> DevicesOfWorkers(const UpOptions& options) {
  const int64_t default_workers = options.cpu_devices.empty() ? 1 : std::ssize(options.cpu_devices);
  const int64_t workers = options.workers == 0 ? default_workers : options.workers;
  if (options.cpu_devices.size() > 1 && workers != std::ssize(options.cpu_devices)) {
    return WrongUsage(absl::InvalidArgumentError(absl::StrCat("--devices: found ", options.cpu_devices.size(),
                                                              " numbers, expected one, or one for each of the ",
                                                              workers, " workers of --workers")));
  }
  DeviceRequests devices = options.devices;
  if (!options.cpu_devices.empty()) devices = {{"cpu", "", options.cpu_devices[0]}};
  CompleteDevices(&devices, kDefaultDevices);
  XLAD_RETURN_IF_ERROR(CheckAvailable(devices));
  std::vector<DeviceRequests> by_worker(workers, devices);
  for (size_t w = 0; w < options.cpu_devices.size() && options.cpu_devices.size() > 1; ++w) {
    by_worker[w][0].count = options.cpu_devices[w];
  }
  return by_worker;
}

// --remove-data removes the data folder at the end, whatever it contains. So the folder must be new, or contain nothing
// but logs: xlad's Python package writes one there before it starts this command.
absl::Status CheckRemovable(const std::string& folder) {
  if (!RealFileSystem().Exists(folder)) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, RealFileSystem().List(folder));
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".log")) continue;
    return absl::AlreadyExistsError(absl::StrCat("--remove-data: found ", name, " in ", folder,
                                                 ", expected a new or empty folder, because it is removed at the end"));
  }
  return absl::OkStatus();
}

int RunUp(UpOptions options) {
  if (options.remove_data) {
    const absl::Status removable = CheckRemovable(options.cluster.data_folder);
    if (!removable.ok()) return Fail(removable);
  }
  auto devices = DevicesOfWorkers(options);
  if (!devices.ok()) return Fail(devices.status());
  options.cluster.devices = *std::move(devices);
  auto coordinator = options.coordinator.Options();
  if (!coordinator.ok()) return Fail(coordinator.status());
  options.cluster.coordinator = *coordinator;
  options.cluster.build_limits.memory_bytes = options.coordinator.build_memory_bytes;
  options.cluster.keep_idle_build = true;
  // If the data folder is removed at the end, executables are kept in the user's cache folder.
  options.cluster.cache_folder = CacheFolder(
      options.cache, options.remove_data ? UserCacheFolder()
                                         : JoinPath(options.cluster.data_folder, "executables"));
  const int code = RunCluster(options);
  std::error_code ignored;
  if (options.remove_data) std::filesystem::remove_all(options.cluster.data_folder, ignored);
  return code;
}

}  // namespace

void AddUp(CLI::App& parent, Action* action) {
  auto options = std::make_shared<UpOptions>();
  options->cluster.listen = "127.0.0.1:7411";
  options->cluster.data_folder = "xlad-data";
  options->cluster.workers_log_to_files = false;
  CLI::App* app = parent.add_subcommand("up", "run a coordinator and workers on this machine, in the foreground");
  app->footer("Examples:\n  xlad up --workers 4 --devices 2\n  xlad up --workers 2 --device cpu:2,opaque:2\n"
              "A worker that ends is replaced.\n"
              "SIGTERM or Ctrl-C drains: running jobs stop after a step, save their state, and continue at the next\n"
              "start. After SIGTERM, the exit code is then 75, or 0 if no job was running.");
  app->add_option(
         "--listen", options->cluster.listen,
         "HOST:PORT of the coordinator, where HOST may be an interface, such as eth0; connections are encrypted "
         "unless it is on loopback")
      ->capture_default_str()
      ->transform(InterfaceAddress())
      ->check(Address());
  app->add_option("--advertise", options->cluster.advertise, kAdvertiseHelp)
      ->transform(InterfaceAddress())
      ->check(Host());
  app->add_option("--http", options->cluster.http, kHttpHelp)->check(Address());
  app->add_option("--data", options->cluster.data_folder, "folder for the job log and blobs")
      ->capture_default_str()
      ->check(NotEmpty());
  app->add_option("--cache", options->cache, kCacheHelp);
  app->add_option("--workers", options->workers, "worker processes; default: 1")->check(Between(1, 1024));
  CLI::Option* const device =
      AddDeviceFlag(app, &options->devices, "COUNT (default: 2) devices of each worker; default KIND: cpu");
  app->add_option("--devices", options->cpu_devices,
                  "cpu devices of each worker, or a number for each worker, such as 3,3,2")
      ->delimiter(',')
      ->check(Between(1, runtime::kMaxDeviceCount))
      ->excludes(device);
  app->add_option("--parent", options->parent, "process that started this one: print the address on standard output, "
                                               "and exit when that process ends")
      ->check(AtLeast(1));
  AddCoordinatorFlags(app, &options->coordinator);
  app->add_flag("--remove-data", options->remove_data, "remove the data folder at the end; it must be new or empty");
  app->callback([=] { *action = [=] { return RunUp(*options); }; });
}

}  // namespace xlad::cli
