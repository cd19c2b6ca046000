#include "base/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace xlad {
namespace {

constexpr size_t kMaxErrorBytes = 64 * 1024;
constexpr int64_t kMaxPollMs = 1'000'000;

int WaitForEnd(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void ReadInto(FileDescriptor* from, std::string* out) {
  char buffer[65536];
  const ssize_t n = read(from->get(), buffer, sizeof buffer);
  if (n > 0) out->append(buffer, n);
  if (n == 0) from->Close();
}

// Limits a resource of another process. A lower hard limit that the process already has remains.
bool SetLimit(pid_t pid, __rlimit_resource resource, int64_t value) {
  rlimit limit{};
  if (prlimit(pid, resource, nullptr, &limit) != 0) return false;
  const rlim_t least = std::min(limit.rlim_max, static_cast<rlim_t>(value));
  limit = {least, least};
  return prlimit(pid, resource, &limit, nullptr) == 0;
}

}  // namespace

std::string DescribeEnd(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  return absl::StrCat("signal ", signal, " (", strsignal(signal), ")");
}

CancelSignal::CancelSignal() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  XLAD_CHECK(event_.is_open()) << "eventfd: " << std::strerror(errno);
}

void CancelSignal::Raise() {
  raised_ = true;
  const uint64_t one = 1;
  XLAD_CHECK(write(event_.get(), &one, sizeof one) == sizeof one || errno == EAGAIN);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& argv,
                                                                  const std::string& log_path) {
  FileDescriptor log;
  if (!log_path.empty()) {
    log = FileDescriptor(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.is_open()) {
      return absl::InternalError(absl::StrCat("cannot write ", log_path, ": ", std::strerror(errno)));
    }
  }
  XLAD_ASSIGN_OR_RETURN(SpawnedProcess process, Spawn({.argv = argv, .output = log.get(), .errors = log.get()}));
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(process)));
}

ChildProcess::~ChildProcess() {
  if (HasEnded()) return;
  SignalProcess(process_, SIGKILL);
  status_ = WaitForEnd(pid());
}

void ChildProcess::Signal(int signal) { SignalProcess(process_, signal); }

bool ChildProcess::HasEnded() {
  if (!ended_) ended_ = waitpid(pid(), &status_, WNOHANG) == pid();
  return ended_;
}

std::string ChildProcess::HowEnded() const { return ended_ ? DescribeEnd(status_) : "still running"; }

bool ChildProcess::WaitFor(int64_t timeout_ms) {
  pollfd end{process_.pidfd.get(), POLLIN, 0};
  const int64_t deadline_ns = RealClock().NowNs() + timeout_ms * kNsPerMs;
  while (!HasEnded()) {
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kNsPerMs;
    if (left_ms <= 0) return false;
    poll(&end, 1, static_cast<int>(std::min(left_ms, kMaxPollMs)));
  }
  return true;
}

absl::StatusOr<std::unique_ptr<IdleChild>> IdleChild::Start(const std::vector<std::string>& argv,
                                                            const ChildLimits& limits) {
  std::unique_ptr<IdleChild> child(new IdleChild(argv[0] == kOwnProgram ? OwnExecutablePath() : argv[0]));
  XLAD_ASSIGN_OR_RETURN(child->in_, Pipe::Make());
  XLAD_ASSIGN_OR_RETURN(child->out_, Pipe::Make());
  XLAD_ASSIGN_OR_RETURN(child->err_, Pipe::Make());
  signal(SIGPIPE, SIG_IGN);
  fcntl(child->in_.write_end.get(), F_SETFL, O_NONBLOCK);
  XLAD_ASSIGN_OR_RETURN(child->process_, Spawn({.argv = argv,
                                                .input = child->in_.read_end.get(),
                                                .output = child->out_.write_end.get(),
                                                .errors = child->err_.write_end.get(),
                                                .memory_bytes = limits.memory_bytes,
                                                .cpu_seconds = limits.cpu_seconds,
                                                .nice = limits.nice}));
  child->in_.read_end.Close();
  child->out_.write_end.Close();
  child->err_.write_end.Close();
  return child;
}

IdleChild::~IdleChild() {
  if (process_.pid < 0) return;
  SignalProcess(process_, SIGKILL);
  WaitForEnd(process_.pid);
}

absl::Status IdleChild::Limit(const ChildLimits& limits) {
  pollfd end{process_.pidfd.get(), POLLIN, 0};
  if (poll(&end, 1, 0) != 0) return absl::UnavailableError(absl::StrCat(name_, " has ended"));
  // With PRIO_PROCESS, setpriority would change only the first thread. The child has a process group of its own.
  const bool limited =
      (limits.memory_bytes <= 0 || SetLimit(pid(), RLIMIT_AS, limits.memory_bytes)) &&
      (limits.cpu_seconds <= 0 || SetLimit(pid(), RLIMIT_CPU, limits.cpu_seconds)) &&
      (limits.nice <= 0 || setpriority(PRIO_PGRP, pid(), getpriority(PRIO_PGRP, pid()) + limits.nice) == 0);
  if (limited) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot limit ", name_, ": ", std::strerror(errno)));
}

absl::StatusOr<ChildResult> IdleChild::Run(absl::string_view input, const ChildLimits& limits) {
  ChildResult result;
  const absl::Status status = Communicate(input, limits, &result);
  if (!status.ok()) SignalProcess(process_, SIGKILL);
  const int end = WaitForEnd(std::exchange(process_.pid, -1));
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(name_, " ", status.message()));
  result.exit_code = WIFEXITED(end) ? WEXITSTATUS(end) : -1;
  result.signal = WIFSIGNALED(end) ? WTERMSIG(end) : 0;
  return result;
}

// Writes the input and reads both outputs until they are closed and the child has ended. Returns early with an error.
absl::Status IdleChild::Communicate(absl::string_view input, const ChildLimits& limits, ChildResult* result) {
  const int64_t deadline_ns = RealClock().NowNs() + limits.timeout_ms * kNsPerMs;
  bool has_ended = false;
  while (!has_ended || out_.read_end.is_open() || err_.read_end.is_open()) {
    if (input.empty()) in_.write_end.Close();
    pollfd ends[5] = {{in_.write_end.get(), POLLOUT, 0},
                      {out_.read_end.get(), POLLIN, 0},
                      {err_.read_end.get(), POLLIN, 0},
                      {limits.cancel == nullptr ? -1 : limits.cancel->fd(), POLLIN, 0},
                      {has_ended ? -1 : process_.pidfd.get(), POLLIN, 0}};
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kNsPerMs;
    if (left_ms <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("was killed because it had not finished after ", limits.timeout_ms, " ms"));
    }
    if (poll(ends, std::size(ends), static_cast<int>(std::min(left_ms, kMaxPollMs))) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    if (ends[3].revents != 0) return absl::CancelledError("was killed because its work was canceled");
    if (ends[0].revents != 0) WriteInput(&input);
    if (ends[1].revents != 0) ReadInto(&out_.read_end, &result->output);
    if (ends[2].revents != 0) ReadInto(&err_.read_end, &result->errors);
    if (std::ssize(result->output) > limits.output_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("was killed because it wrote more than ", limits.output_bytes,
                                                       " bytes to standard output"));
    }
    if (ends[4].revents != 0) has_ended = true;
    if (result->errors.size() > kMaxErrorBytes) {
      result->errors.erase(0, result->errors.size() - kMaxErrorBytes);
    }
  }
  return absl::OkStatus();
}

void IdleChild::WriteInput(absl::string_view* input) {
  const ssize_t n = write(in_.write_end.get(), input->data(), input->size());
  if (n > 0) input->remove_prefix(n);
  // After an error, the child has closed its input, and its output contains the reason.
  if (n < 0 && errno != EAGAIN && errno != EINTR) *input = {};
}

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits) {
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<IdleChild> child, IdleChild::Start(argv, limits));
  return child->Run(input, limits);
}

}  // namespace xlad
