// Serialized executables.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// A proto cannot hold more bytes than this.
inline constexpr int64_t kMaxExecutableBytes = std::numeric_limits<int32_t>::max();

// ResourceExhausted if the executable needs more than `max_bytes`. The error states the bytes of its constants, its
// object code and its steps.
absl::StatusOr<std::string> SerializeExecutable(const Executable& executable,
                                                int64_t max_bytes = kMaxExecutableBytes);

}  // namespace xlad::compiler
