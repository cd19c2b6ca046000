// A coordinator in this process and worker processes on this machine: the cluster of `xlad run` and `xlad up`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "cli/devices.h"
#include "service/coordinator_daemon.h"

namespace xlad::cli {

struct LocalClusterOptions {
  std::string listen = "127.0.0.1:0";
  std::string data_folder;
  std::vector<DeviceRequests> devices;  // By worker; each request has a count.
  std::string cache_folder;             // For executables; empty: none are kept.
  int threads = 0;                      // The cores of all devices together; 0: those that this process may use.
  bool workers_log_to_files = true;     // To data_folder/worker-N.log; otherwise to standard error.
};

// Used by one thread.
class LocalCluster {
 public:
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);
  // Kills the workers that are still running.
  ~LocalCluster();

  std::string Address() const { return daemon_->Address(); }
  // "worker-1 (pid 123) ended: signal 9; its log: PATH" for the first worker that has ended, or empty if all run.
  std::string DeadWorker();
  // Sends SIGTERM to the workers, gives them up to grace_ms to drain, and then ends the coordinator.
  void Drain(int64_t grace_ms);

 private:
  LocalCluster() = default;
  std::unique_ptr<service::CoordinatorDaemon> daemon_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  std::vector<std::string> logs_;  // By worker; empty if it logs to standard error.
};

}  // namespace xlad::cli
