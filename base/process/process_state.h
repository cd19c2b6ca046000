// Whether another process of this host runs, according to /proc.
#pragma once

#include <cstdint>

namespace xlad {

// kStopped: by a signal or a debugger. kGone: the process has ended.
enum class ProcessState { kRunning, kStopped, kGone };

// Returns when a process started, in clock ticks since the host started, or 0 if there is no such process or /proc
// cannot be read. A process id and a start time together identify a process: process ids are reused.
uint64_t StartOfProcess(int64_t pid);

// Returns the state of the process with this id and start time (StartOfProcess). Without a start time (0), that of the
// process that has the id now. If /proc cannot be read, for example because this process has no free file descriptor,
// any process with this id counts as kRunning.
ProcessState StateOfProcess(int64_t pid, uint64_t start_ticks);

}  // namespace xlad
