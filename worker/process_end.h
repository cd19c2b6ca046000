// How the process of an attempt ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/file_system.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {

struct ProcessEnd {
  int64_t pid = 0;
  int exit_code = 0;           // -1 if a signal ended it.
  int signal = 0;              // The signal that ended it, or 0.
  bool out_of_memory = false;  // The process had no memory left, or the system killed it for lack of memory.
  bool killed_here = false;    // The daemon killed it.
  int64_t peak_bytes = 0;      // The maximum physical memory that it used.
  std::string how;             // "exit code 1", "signal 11 (Segmentation fault)"
  std::string last_output;     // The end of its standard output and error, without log lines.
};

// The error of an attempt whose process ended in this way. `memory_limit_bytes` is the limit of the process, or 0 for
// that of the machine. The code indicates whether the next attempt is likely to fail in the same way: a crash is
// Internal, and an external cause, such as a kill, is Unavailable.
absl::Status ExitError(const ProcessEnd& end, int64_t memory_limit_bytes);

// The number of processes that this machine's kernel has killed for lack of memory since it started. Nothing if it
// cannot be read, for example because this process has no free descriptor.
std::optional<int64_t> OomKills(FileSystem& files);
// Whether the kernel has killed a further process since OomKills returned `before`. False if one of the numbers cannot
// be read: a kill from outside must not be taken for a lack of memory, which ends the job when it is repeated.
bool HasNewOomKills(std::optional<int64_t> before, FileSystem& files);

// Completes the report of a process that ended in this way, with the error that ExitError returned.
WorkerMessage ExitMessage(AttemptExited exited, const ProcessEnd& end, const absl::Status& error);

}  // namespace xlad::worker
