// `xlad run` under a launcher, such as mpirun: every process of the launch is a worker. The process of rank 0 is also
// the coordinator.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/devices.h"
#include "collectives/exec/bootstrap.h"
#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/group/meeting.h"
#include "service/credentials/kept_join_file.h"

namespace xlad::cli {

// The time in which a run may save its state after SIGTERM. The sender limits it further, by SIGKILL.
inline constexpr int64_t kRunDrainMs = 3'600'000;

// How the processes of a launch on several hosts find each other. Both texts are empty if all processes are on one
// host.
struct HostsFlags {
  std::string meet;    // A folder that all hosts share.
  std::string listen;  // The host or address of this process, without a port.
};
// Declares --meet and --listen.
void AddHostsFlags(CLI::App* app, HostsFlags* flags);

// The launch if a launcher has started this process with others, otherwise nullopt. Errors are those of
// collectives::DetectLaunch, such as InvalidArgument in the batch script of a Slurm job of several tasks. Without
// --meet, Unimplemented unless the launcher says that all processes are on this host. With --meet, InvalidArgument if
// there is no launcher, or if --listen is a loopback address.
absl::StatusOr<std::optional<collectives::Launch>> LaunchOfRun(const HostsFlags& flags);

// Exchanges values between the processes of a launch through files of this host or, with --meet, of a folder that all
// hosts share. The object must exist until the process ends.
class LaunchedRun {
 public:
  // Opens the folder in which the processes meet. Errors are those of MeetingFolder::Open.
  static absl::StatusOr<std::unique_ptr<LaunchedRun>> Open(const collectives::Launch& launch, const HostsFlags& flags);

  int rank() const { return launch_.rank; }
  int ranks() const { return launch_.ranks; }
  // The HOST:PORT on which rank 0's coordinator listens.
  std::string ListenAddress() const;

  // Rank 0 publishes the address of the coordinator, and at the end the exit code of the run. On several hosts, it also
  // publishes a token of the coordinator with this data folder, in a file that only this user can read. The token is
  // revoked when the object ends.
  absl::Status PutCoordinator(const std::string& address, const std::string& data_folder);
  absl::Status PutEnd(int exit_code);

  // The options of the worker of another rank.
  struct WorkerPart {
    DeviceRequests devices;
    int threads = 0;
    std::string transport;
    bool any_network = false;
  };
  // Called by the other ranks: runs a worker until rank 0 has called PutEnd. Returns the exit code that rank 0 put, or
  // 1 if rank 0 put it before the coordinator's address. If the worker has drained, waits for rank 0, and returns
  // kMoved if rank 0 does not call PutEnd. If the worker ended in another way before rank 0 called PutEnd, or if rank 0
  // did not put the coordinator's address within 1 minute (3 minutes with --meet), returns the exit code for the error,
  // or 1 if there is none.
  int RunWorker(const WorkerPart& part);

 private:
  LaunchedRun(const collectives::Launch& launch, std::string listen,
              std::unique_ptr<collectives::MeetingFolder> folder);
  std::string JoinFile() const;
  // Waits until rank 0 has put the value, `ends` returns true, or `patience_ms` have passed. Returns the last result of
  // the look-up.
  absl::StatusOr<std::string> Await(const char* name, int64_t patience_ms, const std::function<bool()>& ends) const;

  const collectives::Launch launch_;
  const std::string listen_;  // Empty if all processes are on one host.
  const std::unique_ptr<collectives::MeetingFolder> folder_;
  const std::unique_ptr<collectives::Bootstrap> values_;
  std::unique_ptr<service::JoinFileKeeper> join_file_;  // Null before PutCoordinator, and if all are on one host.
};

}  // namespace xlad::cli
