// Builds a submitted program in a child process, so a crash, a hang or an exceeded memory limit fails only that job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/process/child_process.h"
#include "base/status.h"
#include "proto/compile.pb.h"
#include "service/build_queue/build_pool.h"
#include "storage/entry_folder.h"

namespace xlad::service {

// Builds in a child process of the pool, and waits for it. Returns the response, or the error of a failed build. Other
// errors are:
//
//   ResourceExhausted  the request or the response is larger than 2 GiB, or the child needed more memory than `limits`
//                      allows
//   Unavailable        no process can be started now, because this machine lacks processes or descriptors
//   Cancelled          `limits.cancel` was raised, which kills the child at once
//   Internal           the response cannot be parsed, or the child died for another reason: the message has its exit
//                      code or signal and the end of its standard error
//
// If `limits` does not limit processor time, a build may use one hour of it.
// If `not_isolated` is not null and the child has answered, sets it to BuildResponse.not_isolated.
// If `objects` is not null, the child reuses compiled kernels from this folder, and the kernels that it compiles are
// added to the folder. Failures to read or write the folder are only logged. A malicious program that takes over the
// child can add any code under any key, so users who do not trust each other must have different folders.
absl::StatusOr<BuildResponse> BuildInChild(BuildPool& pool, const BuildRequest& request, const ChildLimits& limits,
                                           std::optional<std::string>* not_isolated = nullptr,
                                           const storage::EntryFolder* objects = nullptr);

// The default memory limit of a build: half of the machine's memory, but at least 2 GiB. It is 0, which means no limit,
// in binaries with sanitizers, because sanitizers need a large address space.
int64_t DefaultBuildMemoryBytes();

}  // namespace xlad::service
