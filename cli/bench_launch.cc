#include "cli/bench_launch.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/random.h"

extern char** environ;

namespace xlad::cli {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Names the ranks that a signal ended. Returns the exit code for a status of waitpid.
int CodeOf(int rank, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "xlad: error: rank %d was ended by signal %d (%s)\n", rank, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
  return 1;
}

}  // namespace

absl::StatusOr<int> RunRanks(int ranks) {
  XLAD_ASSIGN_OR_RETURN(const std::string line, RealFileSystem().Read("/proc/self/cmdline"));
  std::vector<std::string> arguments = absl::StrSplit(line, '\0');
  arguments.pop_back();  // The text ends with a zero.
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) environment.push_back(*at);
  const std::string launch = absl::StrCat("xlad-", getpid(), "-", SystemRandom()->Hex(4));
  std::map<pid_t, int> running;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> variables = environment;
    variables.push_back(absl::StrCat("XLAD_RANK=", rank));
    variables.push_back(absl::StrCat("XLAD_RANKS=", ranks));
    variables.push_back(absl::StrCat("XLAD_LAUNCH=", launch));
    pid_t pid = 0;
    const int error =
        posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, Pointers(arguments).data(), Pointers(variables).data());
    if (error != 0) {
      return absl::UnavailableError(absl::StrCat("cannot start rank ", rank, ": ", std::strerror(error)));
    }
    running[pid] = rank;
  }
  int code = 0;
  while (!running.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0) break;
    if (const auto at = running.find(pid); at != running.end()) {
      code = std::max(code, CodeOf(at->second, status));
      running.erase(at);
    }
  }
  return code;
}

}  // namespace xlad::cli
