#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/file_system.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/local_cluster.h"
#include "service/executable_cache.h"

namespace xlad::cli {
namespace {

constexpr int64_t kGraceMs = 20'000;
constexpr int64_t kParentsGraceMs = 2'000;  // Nobody comes back to a parent's cluster.

struct UpOptions {
  LocalClusterOptions cluster;
  std::string cache;
  int64_t workers = 1;
  std::vector<int64_t> devices = {2};
  pid_t parent = 0;  // 0: none.
  bool remove_data = false;
};

int RunCluster(const UpOptions& options) {
  std::atomic<int>* stop = StopRequested();
  // Asked again and again: a parent that dies leaves this process to another one. It may have died already.
  const auto abandoned = [&] { return options.parent != 0 && getppid() != options.parent; };
  if (abandoned()) return kOk;
  const auto cluster = LocalCluster::Start(options.cluster);
  if (!cluster.ok()) return Fail(cluster.status());
  if (options.parent != 0) {
    std::printf("%s\n", (*cluster)->Address().c_str());
    std::fflush(stdout);
  }
  std::fprintf(stderr, "xlad is up at %s with %zu workers; try: xlad ps --coordinator %s\n",
               (*cluster)->Address().c_str(), options.cluster.devices.size(), (*cluster)->Address().c_str());
  std::string reported;
  while (*stop == 0 && !abandoned()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::string dead = (*cluster)->DeadWorker();
    if (dead != reported) LogError(dead);
    reported = dead;
  }
  LogInfo("draining");
  (*cluster)->Drain(options.parent != 0 ? kParentsGraceMs : kGraceMs);
  return kOk;
}

int Run(UpOptions options) {
  std::vector<int64_t>& devices = options.devices;
  if (devices.size() == 1) devices.resize(options.workers, devices[0]);
  options.cluster.devices = devices;
  // What goes with its folder is kept with the user.
  options.cluster.cache_folder = service::CacheFolder(
      options.cache, options.remove_data ? service::UserCacheFolder()
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
  app->footer("Example:\n  xlad up --workers 4 --devices 2\n"
              "SIGTERM or Ctrl-C drains: running jobs stop at a step, with their state, and go on at the next start.");
  app->add_option("--listen", options->cluster.listen, "HOST:PORT of the coordinator, on loopback")
      ->capture_default_str();
  app->add_option("--data", options->cluster.data_folder, "folder for the job log and blobs")->capture_default_str();
  app->add_option("--cache", options->cache, kCacheHelp);
  app->add_option("--workers", options->workers, "worker processes")->capture_default_str()->check(CLI::Range(1, 1024));
  app->add_option("--devices", options->devices, "devices of each worker, or of one after the other, as 3,3,2")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app->add_option("--parent", options->parent, "process that started this one: print the address on standard output, "
                                               "and end when that process does")
      ->check(AtLeast(1));
  app->add_flag("--remove-data", options->remove_data, "remove the folder at the end");
  app->callback([=] { *action = [=] { return Run(*options); }; });
}

}  // namespace xlad::cli
