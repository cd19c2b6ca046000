// The limits of the control group (cgroup v2) that this process is in.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace xlad {

// Calls `visit` with the contents of `file`, as "cpu.max", of the group of this process and of each group around it
// that has the file. Calls nothing if the process is in no group of version 2.
void ForEachCgroupFile(absl::string_view file, absl::FunctionRef<void(absl::string_view)> visit);

}  // namespace xlad
