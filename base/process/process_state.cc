#include "base/process/process_state.h"

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

// Returns the default value if there is no such process.
ProcessStat ReadProcessStat(int64_t pid) {
  const absl::StatusOr<std::string> text = RealFileSystem().Read(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = text.ok() ? text->rfind(')') : std::string::npos;
  if (end == std::string::npos) return {};
  // The fields are counted from the end of the command. The command may contain spaces, and ends at the last
  // parenthesis.
  const std::vector<std::string> fields = absl::StrSplit(text->substr(end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTime = 19;
  ProcessStat stat;
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &stat.start_ticks)) return {};
  stat.state = fields[0][0];
  return stat;
}

}  // namespace

uint64_t StartOfProcess(int64_t pid) { return ReadProcessStat(pid).start_ticks; }

ProcessState StateOfProcess(int64_t pid, uint64_t start_ticks) {
  const ProcessStat stat = ReadProcessStat(pid);
  if (stat.state == 'Z' || stat.state == 'X') return ProcessState::kGone;
  if (start_ticks != 0 && stat.start_ticks != start_ticks) return ProcessState::kGone;
  return stat.state == 'T' || stat.state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace xlad
