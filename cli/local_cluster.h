// A coordinator in this process and worker processes on this machine: the cluster of `xlad run` and `xlad up`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/net/grpc_channel.h"
#include "base/process/child_process.h"
#include "cli/devices.h"
#include "service/build_queue/build_child.h"
#include "service/credentials/kept_join_file.h"
#include "service/rpc/coordinator_daemon.h"

namespace xlad::cli {

struct LocalClusterOptions {
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // The host name or address for other machines, if `listen` is not on loopback.
  // Whether the user's commands connect to this cluster by default, if `listen` is not on loopback. If not, the cluster
  // belongs to one run: its tokens are revoked at the end.
  bool is_users_own = true;
  std::string http;  // HOST:PORT of metrics and dashboard, or "" for none.
  std::string data_folder;
  std::vector<DeviceRequests> devices;  // Indexed by worker; each request has a count.
  std::string cache_folder;             // For executables; if empty, none are cached.
  int threads = 0;                      // The cores of all devices together; if 0, all cores of this process.
  std::string transport = "auto";       // How workers exchange messages (cli/transports.h).
  bool any_network = false;
  int64_t grace_ms = 30'000;  // How long a worker may drain.
  service::CoordinatorOptions coordinator;
  ChildLimits build_limits = {.memory_bytes = service::DefaultBuildMemoryBytes()};
  bool keep_idle_build = false;      // See DaemonOptions.
  bool workers_log_to_files = true;  // To data_folder/worker-N.log. If false, they log to standard error.
};

// The lifetime of the tokens of one run. They are renewed while it lasts, and revoked at its end. If its process is
// killed before, they expire.
inline constexpr int64_t kRunTokenSeconds = 86'400;

// Only one thread may use it.
class LocalCluster {
 public:
  // Starts the coordinator in this process and the workers as child processes. Does not wait until the workers have
  // registered. Errors are those of CoordinatorDaemon::Start, and of starting processes and writing files.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);
  // Kills the workers that are still running, and ends the coordinator.
  ~LocalCluster();

  std::string Address() const { return daemon_->Address(); }
  // How this process connects to the coordinator, with all rights.
  absl::StatusOr<Endpoint> OwnEndpoint();
  std::string HttpAddress() const { return daemon_->HttpAddress(); }
  // Restarts each worker that has ended, under the same name. A worker that ended soon after its start is restarted
  // after a delay, which grows up to half a minute. Logs each end and restart. Returns Aborted ("worker-1 (pid 123)
  // ended: signal 9; its log: PATH") if a worker has ended soon after its start three times in a row.
  absl::Status ReplaceDeadWorkers();
  // Moves the contents of large log files to older parts (base/log_file.h): those of workers, and the standard error of
  // this process if it is a file in the data folder. Checks the sizes at most once a second.
  void RotateLogs();
  // Tells the workers to drain: their jobs stop after a step and save their state. Does not wait.
  void BeginDrain();
  // Tells the workers to drain, gives them up to grace_ms, kills those that still run, and then ends the coordinator.
  // Returns whether a worker had a job whose state is saved.
  bool Drain(int64_t grace_ms);

 private:
  struct Worker {
    std::string name;
    std::vector<std::string> argv;
    std::string log;  // Empty if it logs to standard error.
    std::unique_ptr<ChildProcess> process;
    int64_t started_ns = 0;
    int64_t wait_ms = 0;        // The delay of the next replacement.
    int64_t early_ends = 0;     // How many times in a row the worker ended soon after its start.
    int64_t replace_at_ns = 0;  // When a worker that has ended is replaced; 0 while it runs.
  };

  LocalCluster() = default;
  absl::Status StartWorker(Worker* worker);
  absl::StatusOr<std::vector<std::string>> WorkerConnection(const LocalClusterOptions& options);
  // Writes a join file with a token of `caller` into the data folder, and keeps it valid. Returns its path.
  absl::StatusOr<std::string> KeepJoinFile(const char* name, security::Caller caller);
  static std::string HowEnded(const Worker& worker);

  std::string data_folder_;
  bool is_users_own_ = true;
  std::unique_ptr<service::CoordinatorDaemon> daemon_;
  std::vector<std::unique_ptr<service::JoinFileKeeper>> join_files_;
  std::vector<Worker> workers_;
  std::string own_log_;           // The standard error of this process; empty if it is not in the data folder.
  int64_t logs_checked_ns_ = 0;   // When RotateLogs last checked the sizes.
  bool logs_are_rotated_ = true;  // Whether the last try to rotate succeeded.
};

}  // namespace xlad::cli
