// Builds a submitted program into an executable: read, check against the spec, propagate, partition, check, compile.
//
// The coordinator builds in a child process, so that a crash, a hang or a memory limit there fails only that job.
#pragma once

#include <string>

#include "base/child_process.h"
#include "base/status.h"
#include "proto/compile.pb.h"
#include "proto/xlad_v1.h"
#include "sharding/partition/partition.h"

namespace xlad::service {

// Builds in this process. A message about an error in the program starts with its place ("LINE:COLUMN: ...").
absl::StatusOr<BuildResponse> Build(const BuildRequest& request);

// Returns the compile request for a partitioned program. The spec supplies the names of parameters and results.
absl::StatusOr<CompileRequest> MakeCompileRequest(const sharding::PartitionedProgram& program, const JobSpec& spec,
                                                  const Target& target);

// The child process: reads a BuildRequest from standard input and writes a BuildResponse to standard output. Between
// the two it is in a sandbox (base/sandbox.h), so that a program that takes it over gets no file, no network and no
// other process; BuildRequest.dump_directory is of no use there. Returns the exit code.
int RunBuildChild();

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
