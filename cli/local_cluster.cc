#include "cli/local_cluster.h"

#include <signal.h>

#include <algorithm>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "runtime/host_threads.h"

namespace xlad::cli {
namespace {

int64_t CountDevices(const DeviceRequests& requests) {
  int64_t count = 0;
  for (const runtime::DeviceRequest& request : requests) count += request.count;
  return count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const LocalClusterOptions& options) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(options.data_folder));
  service::DaemonOptions daemon;
  daemon.listen = options.listen;
  daemon.data_folder = options.data_folder;
  daemon.program_path = OwnExecutablePath();
  daemon.cache_folder = options.cache_folder;
  XLAD_ASSIGN_OR_RETURN(cluster->daemon_, service::CoordinatorDaemon::Start(daemon));
  const int64_t threads = options.threads > 0 ? options.threads : runtime::HostThreads();
  int64_t all_devices = 0;
  for (const DeviceRequests& requests : options.devices) all_devices += CountDevices(requests);
  for (size_t w = 0; w < options.devices.size(); ++w) {
    const int64_t share = std::max<int64_t>(1, threads * CountDevices(options.devices[w]) / all_devices);
    const std::string name = absl::StrCat("worker-", w);
    const std::string log =
        options.workers_log_to_files ? JoinPath(options.data_folder, absl::StrCat(name, ".log")) : "";
    XLAD_ASSIGN_OR_RETURN(auto worker, ChildProcess::Start({OwnExecutablePath(), "worker", "--coordinator",
                                                            cluster->Address(), "--device",
                                                            DeviceFlagText(options.devices[w]), "--id", name,
                                                            "--threads", absl::StrCat(share)},
                                                           log));
    cluster->workers_.push_back(std::move(worker));
    cluster->logs_.push_back(log);
  }
  return cluster;
}

LocalCluster::~LocalCluster() {
  workers_.clear();
  if (daemon_ != nullptr) daemon_->Shutdown();
}

std::string LocalCluster::DeadWorker() {
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (!workers_[w]->HasEnded()) continue;
    return absl::StrCat("worker-", w, " (pid ", workers_[w]->pid(), ") ended: ", workers_[w]->HowEnded(),
                        logs_[w].empty() ? "" : absl::StrCat("; its log: ", logs_[w]));
  }
  return "";
}

void LocalCluster::Drain(int64_t grace_ms) {
  for (const auto& worker : workers_) worker->Signal(SIGTERM);
  const int64_t deadline_ns = RealClock().NowNs() + grace_ms * kNsPerMs;
  for (const auto& worker : workers_) {
    worker->WaitFor(std::max<int64_t>(0, (deadline_ns - RealClock().NowNs()) / kNsPerMs));
  }
  workers_.clear();
  daemon_->Shutdown();
}

}  // namespace xlad::cli
