// How many threads of this machine a process may keep busy.
#pragma once

namespace xlad::runtime {

// The environment variable that limits the number: 1 to 65535.
inline constexpr char kThreadsVariable[] = "XLAD_THREADS";

// The number of cores of the process's affinity mask, but no more than its control group's CPU quota (rounded up) and
// than XLAD_THREADS. At least 1. Evaluated once. An invalid XLAD_THREADS is reported in the log and has no effect.
int HostThreads();

// The threads of each of `devices` devices that share the machine: equal shares, at least 1.
int ThreadsOfEach(int host_threads, int devices);

}  // namespace xlad::runtime
