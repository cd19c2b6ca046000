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
// groups, or infinity if there is no limit.
double CpuQuota();

// Returns the number of cores that this process can use at the same time: those of the affinity mask, but not more than
// the quota, rounded down. At least 1.
int UsableCores();

// Returns the quota in cores, given the contents of a control group's cpu.max: "150000 100000" is 1.5. Infinity for
// "max 100000" and for malformed contents.
double CpuQuotaOf(absl::string_view cpu_max);

}  // namespace xlad
