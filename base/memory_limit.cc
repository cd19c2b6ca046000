#include "base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"

namespace xlad {
namespace {

int64_t GroupLimit() {
  const absl::StatusOr<std::string> membership = RealFileSystem().Read("/proc/self/cgroup");
  if (!membership.ok()) return INT64_MAX;
  int64_t limit = INT64_MAX;
  for (absl::string_view line : absl::StrSplit(*membership, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::")) continue;
    for (std::string group(line);; group.resize(group.rfind('/'))) {
      const auto text = RealFileSystem().Read(absl::StrCat("/sys/fs/cgroup", group, "/memory.max"));
      if (text.ok()) limit = std::min(limit, MemoryLimitOf(*text));
      if (group.find('/') == std::string::npos) break;
    }
  }
  return limit;
}

}  // namespace

int64_t UsableMemoryBytes() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  int64_t usable = std::min(machine > 0 ? machine : INT64_MAX, GroupLimit());
  rlimit data;
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur < static_cast<rlim_t>(usable)) {
    usable = static_cast<int64_t>(data.rlim_cur);
  }
  return usable;
}

int64_t MemoryLimitOf(absl::string_view memory_max) {
  int64_t bytes = 0;
  const bool is_number = absl::SimpleAtoi(absl::StripAsciiWhitespace(memory_max), &bytes);
  return is_number && bytes >= 0 ? bytes : INT64_MAX;
}

}  // namespace xlad
