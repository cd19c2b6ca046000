#include "base/process/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace xlad {
namespace {

// The functions up to BecomeChild run in a child between fork and exec. Only async-signal-safe calls are allowed there.

void Limit(int resource, rlim_t value) {
  const rlimit limit{value, value};
  setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

// Returns a descriptor of the same file that no call of Give replaces. If the parent has no standard streams, `fd` may
// have the number of one.
int AboveGiven(int fd) {
  return fd < 0 || fd > kChannelDescriptor ? fd : fcntl(fd, F_DUPFD_CLOEXEC, kChannelDescriptor + 1);
}

// Makes the descriptor `from` available as `to`, which the new program inherits.
void Give(int from, int to) {
  if (dup2(from, to) < 0) _exit(127);
}

// The program that the child executes. Both lists end with a null pointer.
struct Program {
  const char* path;
  char* const* argv;
  char* const* environment;
};

[[noreturn]] void BecomeChild(const Program& program, const SpawnOptions& options, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // The parent ended before prctl was called.
  setpgid(0, 0);
  const int input = AboveGiven(options.input >= 0 ? options.input : open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int output = AboveGiven(options.output), errors = AboveGiven(options.errors);
  const int channel = AboveGiven(options.channel);
  Give(input, STDIN_FILENO);
  if (options.output >= 0) Give(output, STDOUT_FILENO);
  if (options.errors >= 0) Give(errors, STDERR_FILENO);
  if (options.channel >= 0) Give(channel, kChannelDescriptor);
  const unsigned first_unused = options.channel >= 0 ? kChannelDescriptor + 1 : kChannelDescriptor;
  if (!options.keeps_descriptors) syscall(SYS_close_range, first_unused, ~0U, 0);
  if (options.memory_bytes > 0) Limit(RLIMIT_AS, options.memory_bytes);
  if (options.cpu_seconds > 0) Limit(RLIMIT_CPU, options.cpu_seconds);
  if (options.nice > 0) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + options.nice);
  Limit(RLIMIT_CORE, 0);
  execve(program.path, program.argv, program.environment);
  _exit(127);
}

absl::string_view NameOf(absl::string_view variable) { return variable.substr(0, variable.find('=')); }

bool HasVariable(const std::vector<std::string>& variables, absl::string_view name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const std::string& variable) { return NameOf(variable) == name; });
}

}  // namespace

absl::StatusOr<Pipe> Pipe::Make() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string OwnExecutablePath() {
  std::error_code error;
  return std::filesystem::read_symlink(kOwnProgram, error).string();
}

absl::StatusOr<SpawnedProcess> Spawn(const SpawnOptions& options) {
  std::vector<char*> argv, variables;
  for (const std::string& argument : options.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string own = options.argv[0] == kOwnProgram ? OwnExecutablePath() : "";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!HasVariable(options.variables, NameOf(*variable))) variables.push_back(*variable);
  }
  for (const std::string& variable : options.variables) variables.push_back(const_cast<char*>(variable.c_str()));
  variables.push_back(nullptr);
  const pid_t parent = getpid();
  const char* const path = options.program.empty() ? argv[0] : options.program.c_str();
  if (!own.empty()) argv[0] = const_cast<char*>(own.c_str());
  const pid_t child = fork();
  if (child == 0) BecomeChild({path, argv.data(), variables.data()}, options, parent);
  if (child < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(errno)));
  setpgid(child, child);  // The child does this, too. The group exists when either call has returned.
  SpawnedProcess process{child, FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child, 0)))};
  if (process.pidfd.is_open()) return process;
  const std::string error = std::strerror(errno);
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return absl::ResourceExhaustedError(absl::StrCat("pidfd_open: ", error));
}

void SignalProcess(const SpawnedProcess& process, int signal) {
  if (process.pidfd.is_open()) syscall(SYS_pidfd_send_signal, process.pidfd.get(), signal, nullptr, 0);
}

}  // namespace xlad
