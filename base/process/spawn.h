// Starts another program in a new process. All child processes are started in this way (base/process/child_process.h).
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
  // Makes a pipe whose ends are close-on-exec. ResourceExhausted if the system cannot create it.
  static absl::StatusOr<Pipe> Make();
};

// The descriptor that a child has for SpawnOptions::channel.
inline constexpr int kChannelDescriptor = 3;

// The program that this process executes. Unlike the path of its file, this name stays valid when the file is replaced
// or removed. If SpawnOptions::argv[0] is kOwnProgram, the child is of the same build as this process, and its argv[0]
// is OwnExecutablePath().
inline constexpr char kOwnProgram[] = "/proc/self/exe";

// Returns the path of the file that this process executes. The path ends with " (deleted)" if the file was removed.
std::string OwnExecutablePath();

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is a path, unless `program` is set.
  std::string program = {};       // The path of the program. If empty, argv[0] is the path.
  // Descriptors of this process that become the child's standard streams. If `input` is -1, the child reads /dev/null.
  // If `output` or `errors` is -1, the child shares that stream of this process.
  int input = -1;
  int output = -1;
  int errors = -1;
  // Whether the child also inherits all other descriptors of this process that are not close-on-exec.
  bool keeps_descriptors = false;
  int channel = -1;  // Becomes kChannelDescriptor in the child. -1 if there is no channel.
  // Environment variables ("NAME=VALUE") that the child has in addition to those of this process. They replace
  // variables of the same names.
  std::vector<std::string> variables;
  // Limits of the child, or 0 for none: its address space (RLIMIT_AS) in bytes, and its processor time in seconds.
  int64_t memory_bytes = 0;
  int64_t cpu_seconds = 0;
  int nice = 0;  // Added to the niceness of the child if it is positive.
};

struct SpawnedProcess {
  pid_t pid = -1;
  // Becomes readable when the process ends. Signals sent through it cannot reach another process.
  FileDescriptor pidfd;
};

// Starts a program. The child is in its own process group, so Ctrl-C on the terminal signals only this process. It
// writes no core file. Unless keeps_descriptors is set, it inherits only the descriptors that the options name. The
// kernel kills it when the thread that called Spawn ends, and therefore also when this process ends. If the program
// cannot be executed, the child exits with code 127. ResourceExhausted if the system cannot create another process or
// descriptor. Thread-safe.
absl::StatusOr<SpawnedProcess> Spawn(const SpawnOptions& options);

// Sends a signal through the pidfd. Does nothing if the process has ended.
void SignalProcess(const SpawnedProcess& process, int signal);

}  // namespace xlad
