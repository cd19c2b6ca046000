// Work on numbered items in several threads.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace xlad::compiler {

// Calls `work` for 0 .. count-1, started in this order, in at most UsableThreads() threads (base/process/cores.h),
// including the caller's. Returns when all calls have returned. If several fail, returns the error of the lowest
// number.
absl::Status ForEachInThreads(size_t count, const std::function<absl::Status(size_t)>& work);

}  // namespace xlad::compiler
