// Whether the ranks of a process group have cores of their own.
#pragma once

#include <cstdint>
#include <vector>

namespace xlad::collectives {

// Whether processes with these affinity masks (base/cores.h) can all run at the same time, each on a core of its own,
// if they may use `quota` cores together.
bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, double quota);

// The size in bytes of the last-level cache of core 0; 32 MiB if the system does not tell.
int64_t LastLevelCacheBytes();

}  // namespace xlad::collectives
