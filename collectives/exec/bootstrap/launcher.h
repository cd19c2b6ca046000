// The position of this process among the processes that a launcher started: mpirun, srun, torchrun, Kubernetes, or xlad
// itself. docs/reference/launchers.md lists the launchers with the variables that are read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

struct Launch {
  int rank = 0;
  int ranks = 1;
  std::optional<int> local_rank;   // The rank among those on this host, if the launcher says it.
  std::optional<int> local_ranks;  // The number of ranks on this host, if the launcher says it.
  std::string launcher;            // "Open MPI", "MPICH", "Slurm", ... or "xlad", for messages.
  // Equal in all processes of this launch on this machine, and different in any other launch on this machine.
  std::string key;
  // The host of rank 0, or empty if the launcher does not name it. Open MPI names the host of mpirun instead.
  std::string first_host;
  // The name that this process keeps when the launcher restarts it. Empty if the launcher has no such name.
  std::string name;

  friend bool operator==(const Launch&, const Launch&) = default;
};

// Returns the value of an environment variable, if it is set.
using GetVariable = std::function<std::optional<std::string>(const std::string&)>;

// Reads the variables of all launchers. If launchers of several kinds have set their variables, the kind that comes
// first in this list is used: XLAD_RANK, torchrun, the launchers of MPI, Slurm and Flux, Kubernetes and slices of TPUs,
// and last RANK and WORLD_SIZE of an unknown program. Nullopt if no launcher has set its variables.
//
// InvalidArgument, with the variables, if the values are not a rank and a number of ranks, if launchers of the same
// kind disagree, or if RANK and WORLD_SIZE disagree with the chosen launcher (unless XLAD_RANK is set). Also
// InvalidArgument in the batch script of a Slurm job of several tasks, because Slurm runs the script in only one
// process.
absl::StatusOr<std::optional<Launch>> DetectLaunch(const GetVariable& get);

// Does the same with the environment of this process.
absl::StatusOr<std::optional<Launch>> DetectLaunch();

// Returns Unimplemented if the launcher says that the ranks are on several hosts.
absl::Status CheckOneHost(const Launch& launch);

}  // namespace xlad::collectives
