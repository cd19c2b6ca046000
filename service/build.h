// From a submitted program to an executable: read, check against the spec, propagate, partition, check, compile.
//
// In a child process, so that a crash, a hang or a memory limit there fails one job and nothing else.
#pragma once

#include <string>

#include "base/status.h"
#include "base/subprocess.h"
#include "proto/compile.pb.h"
#include "sharding/partition/partition.h"

namespace xlad::service {

// In this process. Errors in the program start with its place.
absl::StatusOr<BuildResponse> Build(const BuildRequest& request);

// The compile request for a partitioned program; parameter and result names from the spec.
absl::StatusOr<CompileRequest> MakeCompileRequest(const sharding::PartitionedProgram& program, const JobSpec& spec,
                                                  const Target& target);

// The child's main: BuildRequest from standard input, BuildResponse to standard output. Returns the exit code.
int RunBuildChild();

// Runs `program_path __build` and waits. A failed build is its error; a child that died says how.
absl::StatusOr<BuildResponse> BuildInChild(const std::string& program_path, const BuildRequest& request,
                                           const ChildLimits& limits);

}  // namespace xlad::service
