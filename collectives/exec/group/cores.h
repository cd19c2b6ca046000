// Whether the ranks of a process group have cores of their own.
#pragma once

#include <cstdint>
#include <vector>

namespace xlad::collectives {

// Returns whether each process can have a core of its own. `masks` contains the affinity mask of each process
// (base/process/cores.h), and `quota` is the CPU quota in cores. The result is true if `quota` is at least the number
// of processes and a bipartite matching assigns each process a core of its mask. The matching is found by augmenting
// paths (Berge, "Two theorems in graph theory", 1957).
bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, double quota);

// Returns the size in bytes of the last-level cache of core 0, or 32 MiB if the system does not report it. Only the
// first call asks the system.
int64_t LastLevelCacheBytes();

}  // namespace xlad::collectives
