// How many threads of this machine a process may keep busy.
#pragma once

namespace xlad::runtime {

// The environment variable that limits this number. Its values are 1 to 65535.
inline constexpr char kThreadsVariable[] = "XLAD_THREADS";

// The minimum of UsableThreads (base/process/cores.h) and XLAD_THREADS. Computed once. An invalid XLAD_THREADS is
// logged and has no effect.
int HostThreads();

// The number of threads for each of `devices` devices that share the machine equally, at least 1.
int ThreadsOfEach(int host_threads, int devices);

}  // namespace xlad::runtime
