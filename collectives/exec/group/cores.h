// Whether the ranks of a process group have cores of their own.
#pragma once

#include <cstdint>
#include <vector>

namespace xlad::collectives {

// Whether each process can have a core of its own, given the affinity masks of the processes (base/cores.h): whether
// `quota` is at least their number, and a matching of processes and the cores of their masks contains all processes.
// The matching is found by augmenting paths (Berge, "Two theorems in graph theory", 1957).
bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, double quota);

// Returns the size in bytes of the last-level cache of core 0, or 32 MiB if the system does not report it.
int64_t LastLevelCacheBytes();

}  // namespace xlad::collectives
