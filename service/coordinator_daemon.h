// The coordinator as a process: the state machine, its job log and blobs on disk, builds in child processes, gRPC.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/subprocess.h"
#include "service/coordinator.h"

namespace xlad::service {

struct DaemonOptions {
  std::string listen = "127.0.0.1:7411";  // Port 0: the system chooses.
  std::string data_folder;                // Job log, blobs, one folder a job. Made where missing.
  std::string program_path;               // Of the build child: this program's own file.
  std::string cache_folder;               // Of executables (executable_cache.h); empty: none are kept.
  // Needed off loopback.
  std::string tls_cert_file, tls_key_file, token_file;
  ChildLimits build_limits;
  CoordinatorOptions coordinator;
};

class CoordinatorDaemon {
 public:
  // Recovers from the data folder, listens and serves. AlreadyExists where the port or the folder is in use.
  static absl::StatusOr<std::unique_ptr<CoordinatorDaemon>> Start(const DaemonOptions& options);
  virtual ~CoordinatorDaemon() = default;

  // HOST:PORT that it listens on.
  virtual std::string Address() const = 0;
  // Stops taking work and closes everything; running jobs go on at their workers. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace xlad::service
