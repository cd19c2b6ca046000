// Builds a submitted program in a child process, so a crash, a hang or an exceeded memory limit fails only that job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/child_process.h"
#include "base/status.h"
#include "proto/compile.pb.h"
#include "storage/entry_folder.h"

namespace xlad::service {

// Runs `program_path __build` and waits for it. A daemon uses kOwnProgram (base/spawn.h), so that the version of the
// objects is that of the child, even if the file of the program was replaced while the daemon runs. Returns the
// response, or the error of a failed build. Other errors: ResourceExhausted if the request or the response is larger
// than 2 GiB, or if the child needed more memory than `limits` allows; Cancelled if `limits.cancel` was raised, which
// kills the child at once; Internal if the response cannot be parsed, or if the child died otherwise, with its exit
// code or signal and the last lines of its standard error. If `limits` has no limit of processor time, a build may use
// one hour of it.
// Sets `not_isolated`, if it is not null and the child has answered, to BuildResponse.not_isolated.
// If `objects` is not null, the child takes the code of kernels from this folder, and the code that it has compiled is
// added to the folder. Failures of the folder are logged. A malicious program that takes the child over can add any
// code under any key, so builds of users who do not trust each other must have different folders.
absl::StatusOr<BuildResponse> BuildInChild(const std::string& program_path, const BuildRequest& request,
                                           const ChildLimits& limits,
                                           std::optional<std::string>* not_isolated = nullptr,
                                           const storage::EntryFolder* objects = nullptr);

// The default memory limit of a build: half of the machine's memory, but at least 2 GiB. It is 0, which means no limit,
// in binaries with sanitizers, because sanitizers need a large address space.
int64_t DefaultBuildMemoryBytes();

}  // namespace xlad::service
