#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/clock.h"

namespace xlad {
namespace {

// The null-terminated array of pointers for execv. The strings must outlive it.
std::vector<char*> ArgumentPointers(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in a child between fork and exec: only async-signal-safe calls are allowed there.
void DetachFromParent() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
}

constexpr size_t kMaxErrorBytes = 64 * 1024;

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  absl::Status Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
    read_end = ends[0];
    write_end = ends[1];
    return absl::OkStatus();
  }
  static void Close(int* end) {
    if (*end >= 0) close(*end);
    *end = -1;
  }
  ~Pipe() {
    Close(&read_end);
    Close(&write_end);
  }
};

struct ChildPipes {
  Pipe in, out, err;
};

// Runs in the child between fork and exec.
[[noreturn]] void BecomeChild(char* const* argv, const ChildPipes& pipes, const ChildLimits& limits) {
  DetachFromParent();
  dup2(pipes.in.read_end, STDIN_FILENO);
  dup2(pipes.out.write_end, STDOUT_FILENO);
  dup2(pipes.err.write_end, STDERR_FILENO);
  if (limits.memory_bytes > 0) {
    const rlim_t bytes = limits.memory_bytes;
    const rlimit memory{bytes, bytes};
    setrlimit(RLIMIT_AS, &memory);
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  execv(argv[0], argv);
  _exit(127);
}

// Writes the input and reads both outputs until the child has closed them. Returns false at the deadline.
bool Communicate(ChildPipes* pipes, absl::string_view input, int64_t deadline_ns, ChildResult* result) {
  Pipe* in = &pipes->in;
  Pipe* out = &pipes->out;
  Pipe* err = &pipes->err;
  fcntl(in->write_end, F_SETFL, O_NONBLOCK);
  char buffer[65536];
  while (out->read_end >= 0 || err->read_end >= 0) {
    if (input.empty()) Pipe::Close(&in->write_end);
    pollfd ends[3] = {{in->write_end, POLLOUT, 0}, {out->read_end, POLLIN, 0}, {err->read_end, POLLIN, 0}};
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kNsPerMs;
    if (left_ms <= 0) return false;
    const int wait_ms = std::min<int64_t>(left_ms, 1'000'000);
    if (poll(ends, 3, wait_ms) < 0 && errno != EINTR) return false;
    if (ends[0].revents != 0) {
      const ssize_t n = write(in->write_end, input.data(), input.size());
      if (n > 0) input.remove_prefix(n);
      if (n < 0 && errno != EAGAIN && errno != EINTR) input = {};  // The child closed its input; its output says why.
    }
    if (ends[1].revents != 0) {
      const ssize_t n = read(out->read_end, buffer, sizeof buffer);
      if (n > 0) result->output.append(buffer, n);
      if (n == 0) Pipe::Close(&out->read_end);
    }
    if (ends[2].revents != 0) {
      const ssize_t n = read(err->read_end, buffer, sizeof buffer);
      if (n > 0) result->errors.append(buffer, n);
      if (n == 0) Pipe::Close(&err->read_end);
      if (result->errors.size() > kMaxErrorBytes) {
        result->errors.erase(0, result->errors.size() - kMaxErrorBytes);
      }
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& argv,
                                                                  const std::string& log_path) {
  const std::vector<char*> arguments = ArgumentPointers(argv);
  int log = -1;
  if (!log_path.empty()) {
    log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) return absl::InternalError(absl::StrCat("cannot write ", log_path, ": ", std::strerror(errno)));
  }
  const pid_t child = fork();
  if (child == 0) {
    DetachFromParent();
    const int null_device = open("/dev/null", O_RDONLY);
    dup2(null_device, STDIN_FILENO);
    if (log >= 0) {
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
    }
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  if (log >= 0) close(log);
  if (child < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(errno)));
  return std::unique_ptr<ChildProcess>(new ChildProcess(child));
}

ChildProcess::~ChildProcess() {
  if (HasEnded()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::Signal(int signal) {
  if (!HasEnded()) kill(pid_, signal);
}

bool ChildProcess::HasEnded() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

std::string ChildProcess::HowEnded() const {
  if (!ended_) return "still running";
  if (WIFSIGNALED(status_)) return absl::StrCat("signal ", WTERMSIG(status_), " (", strsignal(WTERMSIG(status_)), ")");
  return absl::StrCat("exit code ", WEXITSTATUS(status_));
}

bool ChildProcess::WaitFor(int64_t timeout_ms) {
  const int64_t deadline_ns = RealClock().NowNs() + timeout_ms * kNsPerMs;
  while (!HasEnded()) {
    if (RealClock().NowNs() > deadline_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits) {
  ChildPipes pipes;
  XLAD_RETURN_IF_ERROR(pipes.in.Open());
  XLAD_RETURN_IF_ERROR(pipes.out.Open());
  XLAD_RETURN_IF_ERROR(pipes.err.Open());
  const std::vector<char*> arguments = ArgumentPointers(argv);
  signal(SIGPIPE, SIG_IGN);
  const pid_t child = fork();
  if (child < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(errno)));
  if (child == 0) BecomeChild(arguments.data(), pipes, limits);
  Pipe::Close(&pipes.in.read_end);
  Pipe::Close(&pipes.out.write_end);
  Pipe::Close(&pipes.err.write_end);

  ChildResult result;
  const int64_t deadline_ns = RealClock().NowNs() + limits.timeout_ms * kNsPerMs;
  const bool finished = Communicate(&pipes, input, deadline_ns, &result);
  if (!finished) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!finished) {
    return absl::DeadlineExceededError(
        absl::StrCat(argv[0], " was killed because it had not finished after ", limits.timeout_ms, " ms"));
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return result;
}

std::string OwnExecutablePath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

}  // namespace xlad
