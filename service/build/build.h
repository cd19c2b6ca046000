// Builds a submitted program into an executable: read, check against the spec, propagate, partition, check, compile.
//
// The coordinator's process does not call this library. It starts a child process for each build
// (service/build_child.h), whose main function is RunBuildChild.
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

// The child process: reads a BuildRequest from standard input and writes a BuildResponse to standard output. After
// reading, the process enters a sandbox (base/sandbox.h) without files, network and access to other processes, because
// a malicious program may take over the process. If the machine does not allow a sandbox, the process warns on standard
// error and in the response, and continues. In a sandbox, BuildRequest.dump_directory has no effect. Returns the exit
// code: 0 if a response was written, even if the response has an error.
//
// If `objects_folder` is not empty, it is a storage::EntryFolder with the objects of earlier builds. Only those of
// `version` are used. The sandbox permits reading the folder. Objects that are not found there are compiled, and
// returned in the response.
int RunBuildChild(const std::string& objects_folder, const std::string& version);

}  // namespace xlad::service
