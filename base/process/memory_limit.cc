#include "base/process/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/process/cgroup.h"

namespace xlad {

int64_t GroupMemoryBytes() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  int64_t usable = machine > 0 ? machine : INT64_MAX;
  ForEachCgroupFile("memory.max", [&](absl::string_view text) { usable = std::min(usable, MemoryLimitOf(text)); });
  return usable;
}

int64_t UsableMemoryBytes() {
  const int64_t usable = GroupMemoryBytes();
  rlimit data;
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur < static_cast<rlim_t>(usable)) {
    return static_cast<int64_t>(data.rlim_cur);
  }
  return usable;
}

int64_t MemoryLimitOf(absl::string_view memory_max) {
  int64_t bytes = 0;
  const bool is_number = absl::SimpleAtoi(absl::StripAsciiWhitespace(memory_max), &bytes);
  return is_number && bytes >= 0 ? bytes : INT64_MAX;
}

}  // namespace xlad
