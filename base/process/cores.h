// The cores of this machine that this process may use: its affinity mask and the CPU quota of its control group. Also
// the pause of a core in a loop that waits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the affinity mask as a bit set: core c is bit c % 64 of element c / 64. Empty if the system does not report
// it.
std::vector<uint64_t> AffinityMask();

// Returns the smallest CPU quota, in cores, of the control group (version 2) of this process and of the enclosing
// groups, or infinity if there is no limit. It is read once, at the first call, because a process in a sandbox cannot
// read it.
double CpuQuota();

// Returns the number of threads that can run all the time, each on its own core: the number of cores in the affinity
// mask, but at most the quota rounded down. At least 1.
int UsableCores();

// Returns the number of threads that a computation needs to use all of this process's processor time. This is
// UsableCores, but with the quota rounded up: with a quota of 1.5 cores, two threads do more work than one, although
// the kernel pauses them at times.
int UsableThreads();

// The same numbers for an affinity mask of `cores` cores and a quota of `quota` cores.
int UsableCoresOf(int cores, double quota);
int UsableThreadsOf(int cores, double quota);

// Returns the quota in cores, given the contents of a control group's cpu.max: "150000 100000" is 1.5. Infinity for
// "max 100000" and for malformed contents.
double CpuQuotaOf(absl::string_view cpu_max);

// Pauses the core for some cycles. Called in each round of a loop that waits for another core's store, it saves power
// and leaves more of a core to its other hardware thread.
inline void PauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace xlad
