// `xlad run` under a launcher, such as mpirun: every process of the launch is a worker. The process of rank 0 is also the
// coordinator.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/devices.h"
#include "collectives/exec/bootstrap.h"
#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/group/meeting.h"

namespace xlad::cli {

// The launch if a launcher has started this process with others, otherwise nullopt. Errors are those of
// collectives::DetectLaunch, such as InvalidArgument in the batch script of a Slurm job of several tasks. Unimplemented
// unless the launcher says that all processes are on this host.
absl::StatusOr<std::optional<collectives::Launch>> LaunchOfRun();

// Exchanges values between the processes of a launch through files of this host. The object must exist until the
// process ends.
class LaunchedRun {
 public:
  static absl::StatusOr<std::unique_ptr<LaunchedRun>> Open(const collectives::Launch& launch);

  int rank() const { return launch_.rank; }
  int ranks() const { return launch_.ranks; }

  // Rank 0 publishes the address of the coordinator, and at the end the exit code of the run.
  absl::Status PutCoordinator(const std::string& address);
  absl::Status PutEnd(int exit_code);

  // The options of the worker of another rank.
  struct WorkerPart {
    DeviceRequests devices;
    int threads = 0;
    std::string transport;
    bool any_network = false;
  };
  // Called by the other ranks: runs a worker until rank 0 has called PutEnd. Returns the exit code that rank 0 put, or
  // 1 if rank 0 put it before the coordinator's address. If the worker ended before rank 0 called PutEnd, or if rank 0
  // did not put the coordinator's address within a minute, returns the exit code for the error, or 1 if there is none.
  int RunWorker(const WorkerPart& part);

 private:
  LaunchedRun(const collectives::Launch& launch, std::unique_ptr<collectives::MeetingFolder> folder);

  const collectives::Launch launch_;
  const std::unique_ptr<collectives::MeetingFolder> folder_;
  const std::unique_ptr<collectives::Bootstrap> values_;
};

}  // namespace xlad::cli
