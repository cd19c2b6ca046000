#include "cli/bench/launch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/process/spawn.h"
#include "base/random.h"

namespace xlad::cli {
namespace {

// Returns the exit code for a status of waitpid. Prints an error if a signal ended the rank.
int CodeOf(int rank, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "xlad: error: rank %d was ended by signal %d (%s)\n", rank, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
  return 1;
}

// The running ranks. The destructor kills and reaps them.
class Ranks {
 public:
  ~Ranks() {
    for (const auto& [pid, rank] : running_) SignalProcess(rank.process, SIGKILL);
    for (const auto& [pid, rank] : running_) {
      while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }

  absl::Status Start(int rank, const SpawnOptions& options) {
    auto process = Spawn(options);
    if (!process.ok()) {
      return absl::UnavailableError(absl::StrCat("cannot start rank ", rank, ": ", process.status().message()));
    }
    const pid_t pid = process->pid;
    running_[pid] = {rank, *std::move(process)};
    return absl::OkStatus();
  }

  // Waits until all ranks have ended. Returns the largest of their exit codes.
  int Wait() {
    int code = 0;
    while (!running_.empty()) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, 0);
      if (pid < 0 && errno != EINTR) break;
      const auto at = running_.find(pid);
      if (at == running_.end()) continue;
      code = std::max(code, CodeOf(at->second.number, status));
      running_.erase(at);
    }
    return code;
  }

 private:
  struct Rank {
    int number = 0;
    SpawnedProcess process;
  };
  std::map<pid_t, Rank> running_;
};

}  // namespace

absl::StatusOr<int> RunRanks(int ranks) {
  XLAD_ASSIGN_OR_RETURN(const std::string line, RealFileSystem().Read("/proc/self/cmdline"));
  std::vector<std::string> arguments = absl::StrSplit(line, '\0');
  arguments.pop_back();  // The text ends with a zero byte, so the last part is empty.
  SpawnOptions options;
  options.program = kOwnProgram;
  options.keeps_descriptors = true;  // The arguments may name one, for example --json /dev/fd/3.
  options.argv = std::move(arguments);
  const std::string launch = absl::StrCat("XLAD_LAUNCH=xlad-", getpid(), "-", SystemRandom()->Hex(4));
  Ranks running;
  for (int rank = 0; rank < ranks; ++rank) {
    options.variables = {absl::StrCat("XLAD_RANK=", rank), absl::StrCat("XLAD_RANKS=", ranks), launch};
    XLAD_RETURN_IF_ERROR(running.Start(rank, options));
  }
  return running.Wait();
}

}  // namespace xlad::cli
