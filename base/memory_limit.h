// How much memory this process may use.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace xlad {

// The smallest of: the machine's memory, the limit of the control group (version 2) of this process and of the groups
// around it, and the process's own limit on its data (RLIMIT_DATA).
int64_t UsableMemoryBytes();

// The limit that a control group's memory.max says; INT64_MAX for "max" and for anything unexpected.
int64_t MemoryLimitOf(absl::string_view memory_max);

}  // namespace xlad
