// Starts another program in a new process: the part that all kinds of child processes share (base/child_process.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace xlad {

struct Pipe {
  FileDescriptor read_end, write_end;
  static absl::StatusOr<Pipe> Make();
};

// The descriptor under which a child finds SpawnOptions::channel.
inline constexpr int kChannelDescriptor = 3;

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is a path.
  // Descriptors of this process that become those of the child; -1: /dev/null as input, this process's own as outputs.
  int input = -1;
  int output = -1;
  int errors = -1;
  int channel = -1;  // Becomes kChannelDescriptor; -1: none.
  // Limits of the child, or 0 for none: its address space (RLIMIT_AS), and the time that it may use the processor.
  int64_t memory_bytes = 0;
  int64_t cpu_seconds = 0;
};

struct SpawnedProcess {
  pid_t pid = -1;
  FileDescriptor pidfd;  // Becomes readable when the process ends; signals sent to it cannot hit another process.
};

// The child is in its own process group, so that Ctrl-C on the terminal signals only this process; it writes no core
// file; it has no descriptors of this process but those in the options; and it is killed when the thread that calls
// this ends, thus also when this process dies. A program that cannot be executed exits with code 127.
// ResourceExhausted if the system has no process left. Thread-safe.
absl::StatusOr<SpawnedProcess> Spawn(const SpawnOptions& options);

// Sends a signal through the pidfd; a process that has ended is left alone.
void SignalProcess(const SpawnedProcess& process, int signal);

}  // namespace xlad
