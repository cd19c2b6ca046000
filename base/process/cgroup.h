// Reads the limits of this process's control group (cgroup v2).
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace xlad {

// Calls `visit` with the contents of `file`, such as "cpu.max", for the group of this process and for each enclosing
// group that has the file. Does nothing if the process is not in a group of version 2.
void ForEachCgroupFile(absl::string_view file, absl::FunctionRef<void(absl::string_view)> visit);

// Returns the paths, relative to /sys/fs/cgroup, of a process's group and its enclosing groups. `membership` is the
// contents of /proc/self/cgroup: for "0::/a/b", the paths are "/a/b", "/a" and "". Empty if there is no group of
// version 2.
std::vector<std::string> GroupsIn(absl::string_view membership);

}  // namespace xlad
