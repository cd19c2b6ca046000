// The cores of this machine that this process may use: its affinity mask and the CPU quota of its control group.
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

// Returns the number of cores that this process can use all the time, with a thread on each: those of the affinity
// mask, but not more than the quota, rounded down. At least 1.
int UsableCores();

// Returns the number of threads with which a computation uses all of the processor time that this process gets: as
// UsableCores, but the quota is rounded up. With a quota of 1.5 cores, two threads do more work than one, although they
// have to pause.
int UsableThreads();

// Both numbers for `cores` in the affinity mask.
int UsableCoresOf(int cores, double quota);
int UsableThreadsOf(int cores, double quota);

// Returns the quota in cores, given the contents of a control group's cpu.max: "150000 100000" is 1.5. Infinity for
// "max 100000" and for malformed contents.
double CpuQuotaOf(absl::string_view cpu_max);

}  // namespace xlad
