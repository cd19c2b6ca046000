// A coordinator in this process and worker processes on this machine: what `xlad run` and `xlad up` stand on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "service/coordinator_daemon.h"

namespace xlad::cli {

struct LocalClusterOptions {
  std::string listen = "127.0.0.1:0";
  std::string data_folder;
  std::vector<int64_t> devices;  // Of each worker.
  std::string cache_folder;      // Of executables; empty: none are kept.
  bool workers_log_to_files = true;  // data_folder/worker-N.log; else they inherit standard error.
};

class LocalCluster {
 public:
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);
  ~LocalCluster();

  std::string Address() const { return daemon_->Address(); }
  // "worker-1 (pid 123) ended: signal 9; its log: PATH" for the first worker that is gone; else empty.
  std::string DeadWorker();
  // SIGTERM to the workers, at most grace_ms for them to drain, then the coordinator.
  void Drain(int64_t grace_ms);

 private:
  LocalCluster() = default;
  std::unique_ptr<service::CoordinatorDaemon> daemon_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  std::vector<std::string> logs_;
};

// `devices` dealt to `workers` as evenly as they go: 8 on 3 is 3, 3, 2. Fewer workers where there are fewer devices.
std::vector<int64_t> SpreadDevices(int64_t devices, int64_t workers);

}  // namespace xlad::cli
