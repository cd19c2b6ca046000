// The position of this process among the processes that a launcher has started: mpirun of Open MPI or MPICH, srun, or
// xlad itself.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

struct Launch {
  int rank = 0;
  int ranks = 1;
  std::string launcher;  // "Open MPI", "MPICH", "Slurm" or "xlad", for messages.
  // Equal in all processes of this launch, and different in any other launch on this machine.
  std::string key;
};

// Reads the variables of the launchers: XLAD_RANK, XLAD_RANKS and XLAD_LAUNCH (set by `xlad bench --ranks`, or by
// hand); OMPI_COMM_WORLD_RANK and _SIZE; PMI_RANK and PMI_SIZE; SLURM_PROCID and SLURM_NTASKS, in this order. `get`
// returns the value of an environment variable, if it is set. Nullopt if no launcher has set its variables.
// InvalidArgument if they are set but are not a rank and a number of ranks; Unimplemented if the ranks are on several
// hosts.
absl::StatusOr<std::optional<Launch>> DetectLaunch(
    const std::function<std::optional<std::string>(const std::string&)>& get);

// The same with the environment of this process.
absl::StatusOr<std::optional<Launch>> DetectLaunch();

}  // namespace xlad::collectives
