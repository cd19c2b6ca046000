// The coordinator daemon: the coordinator state machine, its job log and blobs on disk, builds in child processes, and
// the gRPC server. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/process/child_process.h"
#include "base/status.h"
#include "service/coordinator.h"

namespace xlad::service {

struct DaemonOptions {
  std::string listen = "127.0.0.1:7411";  // HOST:PORT. If the port is 0, the system chooses one.
  // HOST:PORT of metrics, health and dashboard (service/http/http_pages.h); empty to disable them.
  std::string http;
  std::string data_folder;   // The job log, the blobs and one folder per job. Created if missing.
  std::string program_path;  // The xlad program. Each build runs it as a child process.
  // Whether a process is kept ready for the next build (service/build_queue/build_pool.h).
  bool keep_idle_build = false;
  std::string cache_folder;  // The executable cache (service/blobs/executable_cache.h); empty for none.
  // Files that the user provides, all optional: a certificate, its key, and a token that allows every call. When the
  // certificate and the key change, new connections use the new ones. If no certificate is given and `listen` is not a
  // loopback address, the daemon makes a certificate authority, a certificate and tokens in the data folder
  // (service/credentials/managed_security.h).
  std::string tls_cert_file, tls_key_file, token_file;
  // Every `certificate_check_ms`, the daemon renews a certificate that it has made if less than a third of the validity
  // is left according to this clock.
  const Clock* certificate_clock = &RealClock();
  int64_t certificate_check_ms = 60'000;
  std::string advertise;  // The host by which other machines reach the coordinator; empty for the host of `listen`.
  ChildLimits build_limits;
  // A call is canceled if its first message, its last response or any message of a long-lived stream takes longer than
  // this (grpc_message_limits.h).
  int64_t message_ms = 30'000;
  CoordinatorOptions coordinator;
};

// InvalidArgument if `listen` is not HOST:PORT, if only one of certificate and key is given, or if a certificate is
// given without a token and `listen` is not a loopback address.
absl::Status CheckProtection(const DaemonOptions& options);

class CoordinatorDaemon {
 public:
  // Recovers the jobs from the data folder, then listens and serves. AlreadyExists if the port or the folder is in use.
  static absl::StatusOr<std::unique_ptr<CoordinatorDaemon>> Start(const DaemonOptions& options);
  virtual ~CoordinatorDaemon() = default;

  // The HOST:PORT on which the daemon listens. If the daemon has made its own certificate, this is the HOST:PORT by
  // which other machines reach it.
  virtual std::string Address() const = 0;
  // The HOST:PORT of metrics, health and dashboard, or empty if they are disabled.
  virtual std::string HttpAddress() const = 0;
  // Stops serving and closes all connections. Running jobs continue on their workers. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace xlad::service
