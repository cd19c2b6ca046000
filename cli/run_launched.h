// `xlad run` under mpirun: every process of the launch is a worker, and that of rank 0 is the coordinator too.
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

// The launch if mpirun of Open MPI or MPICH has started this process with others, otherwise nullopt. A batch script of
// Slurm starts `xlad run` as one process: the result is nullopt there too. Errors as of collectives::DetectLaunch.
absl::StatusOr<std::optional<collectives::Launch>> MpirunLaunch();

// The meeting place of the processes of a launch: files of this host. Must exist until the process ends.
class LaunchedRun {
 public:
  static absl::StatusOr<std::unique_ptr<LaunchedRun>> Open(const collectives::Launch& launch);

  int rank() const { return launch_.rank; }
  int ranks() const { return launch_.ranks; }

  // Called by rank 0: where the coordinator serves; the exit code of the run, at its end.
  absl::Status PutCoordinator(const std::string& address);
  absl::Status PutEnd(int exit_code);

  // What the worker of another rank needs.
  struct WorkerPart {
    DeviceRequests devices;
    int threads = 0;
    std::string transport;
    bool any_network = false;
  };
  // Called by the other ranks: runs a worker until rank 0 has ended. Returns the exit code of the run.
  int RunWorker(const WorkerPart& part);

 private:
  LaunchedRun(const collectives::Launch& launch, std::unique_ptr<collectives::MeetingFolder> folder);

  const collectives::Launch launch_;
  const std::unique_ptr<collectives::MeetingFolder> folder_;
  const std::unique_ptr<collectives::Bootstrap> values_;
};

}  // namespace xlad::cli
