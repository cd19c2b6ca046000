// Builds a submitted program in a child process, so that a crash, a hang or a memory limit there fails only that job.
#pragma once

#include <cstdint>
#include <string>

#include "base/child_process.h"
#include "base/status.h"
#include "proto/compile.pb.h"

namespace xlad::service {

// Runs `program_path __build` and waits for it. Returns the error of a failed build, ResourceExhausted if it needed
// more memory than `limits` allows, Internal with the exit code or signal and the last lines of its standard error if
// the child died otherwise, or Cancelled if `limits.cancel` was raised, which kills the child at once. Without a limit
// of processor time in `limits` a build may use one hour.
absl::StatusOr<BuildResponse> BuildInChild(const std::string& program_path, const BuildRequest& request,
                                           const ChildLimits& limits);

// The memory that a build may use if nothing else is said: half of the machine's, at least 2 GiB. 0, which means any
// amount, in binaries with sanitizers, which need much address space.
int64_t DefaultBuildMemoryBytes();

}  // namespace xlad::service
