// The memory that this process may use.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the smallest of these limits: the machine's memory, and the limits of this process's control group (version
// 2) and of the enclosing groups.
int64_t GroupMemoryBytes();

// The same, but also considers the process's own limit on its data (RLIMIT_DATA), which does not apply to shared
// memory.
int64_t UsableMemoryBytes();

// Returns the limit in a control group's memory.max, or INT64_MAX for "max" and for malformed contents.
int64_t MemoryLimitOf(absl::string_view memory_max);

}  // namespace xlad
