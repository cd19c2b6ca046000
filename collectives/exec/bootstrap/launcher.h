// The position of this process among the processes that a launcher has started: mpirun, srun, torchrun, Kubernetes, or
// xlad itself. docs/reference/launchers.md lists the launchers with the variables that are read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

struct Launch {
  int rank = 0;
  int ranks = 1;
  std::optional<int> local_rank;   // Among the ranks on this host, if the launcher says it.
  std::optional<int> local_ranks;  // The number of ranks on this host.
  std::string launcher;            // "Open MPI", "MPICH", "Slurm", ... or "xlad", for messages.
  // Equal in all processes of this launch, and different in any other launch on this machine.
  std::string key;
  // The host of rank 0 if the launcher tells it, otherwise empty. Open MPI tells the host of mpirun instead.
  std::string first_host;
  // A name that this process has again when the launcher restarts it; empty if the launcher has no such name.
  std::string name;

  friend bool operator==(const Launch&, const Launch&) = default;
};

// Returns the value of an environment variable, if it is set.
using GetVariable = std::function<std::optional<std::string>(const std::string&)>;

// Reads the variables of all launchers. If several have set theirs, they agree or one was started inside of the other:
// XLAD_RANK is followed in any case, then torchrun, then the launchers of MPI, then Slurm and Flux, then Kubernetes.
// Nullopt if no launcher has set its variables. InvalidArgument, with the variables, if they are set but are not a rank
// and a number of ranks; if launchers of the same kind disagree; and in the batch script of a Slurm job of several
// tasks, in which Slurm runs one process only.
absl::StatusOr<std::optional<Launch>> DetectLaunch(const GetVariable& get);

// The same with the environment of this process.
absl::StatusOr<std::optional<Launch>> DetectLaunch();

// Unimplemented if the launcher says that the ranks are on several hosts.
absl::Status CheckOneHost(const Launch& launch);

}  // namespace xlad::collectives
