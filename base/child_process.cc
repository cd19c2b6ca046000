#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

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

// The pipes of one RunChild call, and the data that is sent through them.
class Communication {
 public:
  Communication(absl::string_view input, const ChildLimits& limits)
      : input_(input), limits_(limits), deadline_ns_(RealClock().NowNs() + limits.timeout_ms * kNsPerMs) {}

  absl::StatusOr<SpawnedProcess> Start(const std::vector<std::string>& argv) {
    XLAD_ASSIGN_OR_RETURN(in_, Pipe::Make());
    XLAD_ASSIGN_OR_RETURN(out_, Pipe::Make());
    XLAD_ASSIGN_OR_RETURN(err_, Pipe::Make());
    signal(SIGPIPE, SIG_IGN);
    fcntl(in_.write_end.get(), F_SETFL, O_NONBLOCK);
    auto process = Spawn({.argv = argv,
                          .input = in_.read_end.get(),
                          .output = out_.write_end.get(),
                          .errors = err_.write_end.get(),
                          .memory_bytes = limits_.memory_bytes,
                          .cpu_seconds = limits_.cpu_seconds,
                          .nice = limits_.nice});
    in_.read_end.Close();
    out_.write_end.Close();
    err_.write_end.Close();
    return process;
  }

  // Writes the input and reads both outputs until they are closed and the child has ended. Returns early with an error.
  absl::Status Run(const SpawnedProcess& process, ChildResult* result) {
    bool has_ended = false;
    while (!has_ended || out_.read_end.is_open() || err_.read_end.is_open()) {
      if (input_.empty()) in_.write_end.Close();
      pollfd ends[5] = {{in_.write_end.get(), POLLOUT, 0},
                        {out_.read_end.get(), POLLIN, 0},
                        {err_.read_end.get(), POLLIN, 0},
                        {limits_.cancel == nullptr ? -1 : limits_.cancel->fd(), POLLIN, 0},
                        {has_ended ? -1 : process.pidfd.get(), POLLIN, 0}};
      const int64_t left_ms = (deadline_ns_ - RealClock().NowNs()) / kNsPerMs;
      if (left_ms <= 0) {
        return absl::DeadlineExceededError(
            absl::StrCat("was killed because it had not finished after ", limits_.timeout_ms, " ms"));
      }
      if (poll(ends, std::size(ends), static_cast<int>(std::min(left_ms, kMaxPollMs))) < 0 && errno != EINTR) {
        return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
      }
      if (ends[3].revents != 0) return absl::CancelledError("was killed because its work was canceled");
      if (ends[0].revents != 0) WriteInput();
      if (ends[1].revents != 0) Read(&out_.read_end, &result->output);
      if (ends[2].revents != 0) Read(&err_.read_end, &result->errors);
      if (std::ssize(result->output) > limits_.output_bytes) {
        return absl::ResourceExhaustedError(absl::StrCat("was killed because it wrote more than ", limits_.output_bytes,
                                                         " bytes to standard output"));
      }
      if (ends[4].revents != 0) has_ended = true;
      if (result->errors.size() > kMaxErrorBytes) {
        result->errors.erase(0, result->errors.size() - kMaxErrorBytes);
      }
    }
    return absl::OkStatus();
  }

 private:
  void WriteInput() {
    const ssize_t n = write(in_.write_end.get(), input_.data(), input_.size());
    if (n > 0) input_.remove_prefix(n);
    // After an error, the child has closed its input, and its output contains the reason.
    if (n < 0 && errno != EAGAIN && errno != EINTR) input_ = {};
  }

  static void Read(FileDescriptor* from, std::string* out) {
    char buffer[65536];
    const ssize_t n = read(from->get(), buffer, sizeof buffer);
    if (n > 0) out->append(buffer, n);
    if (n == 0) from->Close();
  }

  absl::string_view input_;
  const ChildLimits& limits_;
  const int64_t deadline_ns_;
  Pipe in_, out_, err_;
};

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

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& argv, absl::string_view input,
                                     const ChildLimits& limits) {
  Communication communication(input, limits);
  XLAD_ASSIGN_OR_RETURN(const SpawnedProcess process, communication.Start(argv));
  ChildResult result;
  const absl::Status status = communication.Run(process, &result);
  if (!status.ok()) SignalProcess(process, SIGKILL);
  const int end = WaitForEnd(process.pid);
  if (!status.ok()) {
    const std::string name = argv[0] == kOwnProgram ? OwnExecutablePath() : argv[0];
    return absl::Status(status.code(), absl::StrCat(name, " ", status.message()));
  }
  result.exit_code = WIFEXITED(end) ? WEXITSTATUS(end) : -1;
  result.signal = WIFSIGNALED(end) ? WTERMSIG(end) : 0;
  return result;
}
}  // namespace xlad
