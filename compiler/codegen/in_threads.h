// Work on numbered items in several threads.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace xlad::compiler {

// Calls `work` for 0 .. count-1, in this order and in UsableThreads() threads (base/cores.h). Returns the first error
// in the order of the numbers.
absl::Status ForEachInThreads(size_t count, const std::function<absl::Status(size_t)>& work);

}  // namespace xlad::compiler
