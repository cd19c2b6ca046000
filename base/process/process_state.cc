#include "base/process/process_state.h"

#include <signal.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"

namespace xlad {
namespace {

struct ProcessStat {
  char state = 'X';
  uint64_t start_ticks = 0;
};

// Returns nullopt if there is no such process or /proc cannot be read.
std::optional<ProcessStat> ReadProcessStat(int64_t pid) {
  const absl::StatusOr<std::string> text = RealFileSystem().Read(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = text.ok() ? text->rfind(')') : std::string::npos;
  if (end == std::string::npos) return std::nullopt;
  // The fields are counted from the end of the command. The command may contain spaces, and ends at the last
  // parenthesis.
  const std::vector<std::string> fields = absl::StrSplit(text->substr(end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTime = 19;
  ProcessStat stat;
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &stat.start_ticks)) return std::nullopt;
  stat.state = fields[0][0];
  return stat;
}

bool HasProcess(int64_t pid) {
  if (pid <= 0 || pid > std::numeric_limits<pid_t>::max()) return false;
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

}  // namespace

uint64_t StartOfProcess(int64_t pid) { return ReadProcessStat(pid).value_or(ProcessStat()).start_ticks; }

ProcessState StateOfProcess(int64_t pid, uint64_t start_ticks) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  if (!stat.has_value()) return HasProcess(pid) ? ProcessState::kRunning : ProcessState::kGone;
  if (stat->state == 'Z' || stat->state == 'X') return ProcessState::kGone;
  if (start_ticks != 0 && stat->start_ticks != start_ticks) return ProcessState::kGone;
  return stat->state == 'T' || stat->state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace xlad
