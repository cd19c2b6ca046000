// The cores that this process may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace xlad::collectives {

// The cores of this process's affinity mask, as a bit set of 64-bit words.
std::vector<uint64_t> AllowedCores();

// The number of whole cores of CPU time that the control group of this process may use, at least 1; INT_MAX if it is
// not limited. `cpu_max` is the text of cgroup v2's cpu.max: "150000 100000" or "max 100000".
int QuotaCores(const std::string& cpu_max);
int QuotaCores();

// Whether `ranks` processes with these affinity masks can all run at the same time, each on a core of its own.
bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, int quota_cores);

// The size in bytes of the last-level cache of core 0; 32 MiB if the system does not tell.
int64_t LastLevelCacheBytes();

}  // namespace xlad::collectives
