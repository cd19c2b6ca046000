#include <chrono>
#include <cstdio>
#include <thread>

#include "base/log.h"
#include "cli/command.h"
#include "cli/local_cluster.h"

namespace xlad::cli {
namespace {

constexpr int64_t kGraceMs = 20'000;

int Run(const LocalClusterOptions& options) {
  std::atomic<int>* stop = StopRequested();
  const auto cluster = LocalCluster::Start(options);
  if (!cluster.ok()) return Fail(cluster.status());
  std::fprintf(stderr, "xlad is up at %s with %zu workers; try: xlad ps --coordinator %s\n",
               (*cluster)->Address().c_str(), options.devices.size(), (*cluster)->Address().c_str());
  std::string reported;
  while (*stop == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::string dead = (*cluster)->DeadWorker();
    if (dead != reported) LogError(dead);
    reported = dead;
  }
  LogInfo("draining");
  (*cluster)->Drain(kGraceMs);
  return kOk;
}

}  // namespace

void AddUp(CLI::App& parent, Action* action) {
  auto options = std::make_shared<LocalClusterOptions>();
  options->listen = "127.0.0.1:7411";
  options->data_folder = "xlad-data";
  options->workers_log_to_files = false;
  auto workers = std::make_shared<int64_t>(1);
  auto devices = std::make_shared<int64_t>(2);
  CLI::App* app = parent.add_subcommand("up", "run a coordinator and workers on this machine, in the foreground");
  app->footer("Example:\n  xlad up --workers 4 --devices 2\n"
              "SIGTERM or Ctrl-C drains: running jobs stop at a step, with their state, and go on at the next start.");
  app->add_option("--listen", options->listen, "HOST:PORT of the coordinator, on loopback")->capture_default_str();
  app->add_option("--data", options->data_folder, "folder for the job log and blobs")->capture_default_str();
  app->add_option("--workers", *workers, "worker processes")->capture_default_str()->check(CLI::Range(1, 1024));
  app->add_option("--devices", *devices, "devices of each worker")->capture_default_str()->check(CLI::Range(1, 1024));
  app->callback([=] {
    options->devices.assign(static_cast<size_t>(*workers), *devices);
    *action = [=] { return Run(*options); };
  });
}

}  // namespace xlad::cli
