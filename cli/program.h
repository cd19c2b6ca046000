// Reads a program, and its feeds if it comes from a job directory, for the commands that inspect programs.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "client/job_directory.h"
#include "hlo/module.h"
#include "sharding/pipeline.h"

namespace xlad::cli {

struct LoadedProgram {
  std::unique_ptr<hlo::Module> module;
  sharding::ImportOptions import;
  client::Job job;  // Empty unless the program came from a job directory.
  bool is_job = false;
};

// Reads `path`: a program file, "-" for standard input, or a job directory. `mesh` is the value of --mesh. A job is
// checked in the same way as by the coordinator before a build. Errors start with the path, except for those of `mesh`.
absl::StatusOr<LoadedProgram> LoadProgram(const std::string& path, const std::string& mesh);

// Prints a warning to standard error if constants of the module have no values, because its text omits them ("{...}").
// Such constants count as zeros.
void WarnOfElidedConstants(const hlo::Module& module);

// Runs the sharding pipeline: verify, import, propagate, partition, check.
absl::StatusOr<sharding::PipelineResult> PartitionProgram(LoadedProgram program);

}  // namespace xlad::cli
