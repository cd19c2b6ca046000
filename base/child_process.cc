#include "base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"

namespace xlad {

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& argv,
                                                                  const std::string& log_path) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int log = -1;
  if (!log_path.empty()) {
    log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) return absl::InternalError(absl::StrCat("cannot write ", log_path, ": ", std::strerror(errno)));
  }
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);  // Ctrl-C on the terminal signals only the parent, which then ends its children in order.
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

}  // namespace xlad
