#include "base/process/cgroup.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"

namespace xlad {

void ForEachCgroupFile(absl::string_view file, absl::FunctionRef<void(absl::string_view)> visit) {
  const absl::StatusOr<std::string> membership = RealFileSystem().Read("/proc/self/cgroup");
  if (!membership.ok()) return;
  for (const std::string& group : GroupsIn(*membership)) {
    const auto text = RealFileSystem().Read(absl::StrCat("/sys/fs/cgroup", group, "/", file));
    if (text.ok()) visit(*text);
  }
}

std::vector<std::string> GroupsIn(absl::string_view membership) {
  for (absl::string_view line : absl::StrSplit(membership, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::")) continue;
    std::vector<std::string> groups;
    for (std::string group(absl::StripSuffix(line, "/"));; group.resize(group.rfind('/'))) {
      groups.push_back(group);
      if (group.find('/') == std::string::npos) return groups;
    }
  }
  return {};
}

}  // namespace xlad
