// How many threads of this machine a process may keep busy.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::runtime {

// The environment variable that limits the number: 1 to 65535.
inline constexpr char kThreadsVariable[] = "XLAD_THREADS";

// The number of cores of the process's affinity mask, but no more than its control group's CPU quota (rounded up) and
// than XLAD_THREADS. At least 1. Evaluated once. An invalid XLAD_THREADS is reported in the log and has no effect.
int HostThreads();

// The quota in cores, rounded up, of the contents of a control group's cpu.max ("150000 100000" is 2); 0 if the
// contents ("max 100000", or anything unexpected) set none.
int QuotaOf(absl::string_view cpu_max);

// The threads of each of `devices` devices that share the machine: equal shares, at least 1.
int ThreadsOfEach(int host_threads, int devices);

}  // namespace xlad::runtime
