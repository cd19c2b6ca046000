// Builds a submitted program into an executable: read, check against the spec, propagate, partition, check, compile.
//
// The coordinator's process does not call this library. It starts a child process for each build
// (service/build_queue/build_child.h), whose main function is RunBuildChild.
#pragma once

#include "base/status.h"
#include "compiler/codegen/object_cache.h"
#include "proto/compile.pb.h"
#include "proto/xlad_v1.h"
#include "sharding/partition/partition.h"

namespace xlad::service {

// Builds in this process. A message about a syntax error in the text of the program starts with its place
// ("LINE:COLUMN: ..."). `objects` may be null.
absl::StatusOr<BuildResponse> Build(const BuildRequest& request, compiler::ObjectCache* objects = nullptr);

// Returns the compile request for a partitioned program. The spec supplies the names of parameters and results.
absl::StatusOr<CompileRequest> MakeCompileRequest(const sharding::PartitionedProgram& program, const JobSpec& spec,
                                                  const Target& target);

// The child process: reads its input from standard input and writes a BuildResponse to standard output. The input is
// the path of a folder and a version, each followed by a NUL byte, and then a BuildRequest. After reading, the process
// enters a sandbox (base/process/sandbox.h) without files, network and access to other processes, because a malicious
// program may take over the process. If the machine does not allow a sandbox, the process warns on standard error and
// in the response, and continues. In a sandbox, BuildRequest.dump_directory has no effect. Returns the exit code: 0 if
// a response was written, even if the response has an error.
//
// If the path is not empty, the folder is a storage::EntryFolder with the objects of earlier builds. Only objects of
// the version are used. The sandbox permits reading the folder. Objects that are not found there are compiled, and
// returned in the response.
//
// If `is_idle`, the input is not expected soon. The process then first does the work that only the first build of a
// process needs, such as loading code.
int RunBuildChild(bool is_idle);

}  // namespace xlad::service
