// Builds a submitted program into an executable: read, check against the spec, propagate, partition, check, compile.
//
// The coordinator does not link this: it builds in a child process (service/build_child.h), whose main function is
// here.
#pragma once

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
// other process; BuildRequest.dump_directory is of no use there. Returns the exit code: 0 if a response was written,
// even if it holds an error.
int RunBuildChild();

}  // namespace xlad::service
