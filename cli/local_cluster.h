// A coordinator in this process and worker processes on this machine: the cluster of `xlad run` and `xlad up`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "cli/devices.h"
#include "service/build_child.h"
#include "service/coordinator_daemon.h"

namespace xlad::cli {

struct LocalClusterOptions {
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // Off loopback: the host by which other machines reach this one.
  std::string http;       // HOST:PORT of metrics and dashboard; empty: none.
  std::string data_folder;
  std::vector<DeviceRequests> devices;  // By worker; each request has a count.
  std::string cache_folder;             // For executables; empty: none are kept.
  int threads = 0;                      // The cores of all devices together; 0: those that this process may use.
  std::string transport = "auto";       // How messages travel between the workers (cli/transports.h).
  bool any_network = false;
  service::CoordinatorOptions coordinator;
  ChildLimits build_limits = {.memory_bytes = service::DefaultBuildMemoryBytes()};
  bool workers_log_to_files = true;  // To data_folder/worker-N.log; otherwise to standard error.
};

// Used by one thread.
class LocalCluster {
 public:
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);
  // Kills the workers that are still running.
  ~LocalCluster();

  std::string Address() const { return daemon_->Address(); }
  std::string HttpAddress() const { return daemon_->HttpAddress(); }
  // Starts each worker that has ended again under its name. One that ended soon after its start has to wait, longer
  // each time, up to half a minute. Logs what it does. Aborted ("worker-1 (pid 123) ended: signal 9; its log: PATH")
  // if a worker has ended soon after its start three times in a row.
  absl::Status ReplaceDeadWorkers();
  // Sends SIGTERM to the workers, gives them up to grace_ms to drain, and then ends the coordinator.
  void Drain(int64_t grace_ms);

 private:
  struct Worker {
    std::string name;
    std::vector<std::string> argv;
    std::string log;  // Empty if it logs to standard error.
    std::unique_ptr<ChildProcess> process;
    int64_t started_ns = 0;
    int64_t wait_ms = 0;        // How long its next replacement waits.
    int64_t early_ends = 0;     // How many times in a row it ended soon after its start.
    int64_t replace_at_ns = 0;  // When a worker that has ended is replaced; 0 while it runs.
  };

  LocalCluster() = default;
  absl::Status StartWorker(Worker* worker);
  absl::StatusOr<std::vector<std::string>> WorkerConnection(const LocalClusterOptions& options);
  static std::string HowEnded(const Worker& worker);

  std::unique_ptr<service::CoordinatorDaemon> daemon_;
  std::vector<Worker> workers_;
};

}  // namespace xlad::cli
