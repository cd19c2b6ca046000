// A program and what is known of how it is fed, from a file or a job directory: for the commands that look at
// programs without running them.
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
  client::Job job;          // Empty unless it came from a job directory.
  bool is_job = false;
};

// `path` is a program file ("-": standard input) or a job directory; `mesh` as in --mesh. Errors start with the path.
absl::StatusOr<LoadedProgram> LoadProgram(const std::string& path, const std::string& mesh);

// Verify, import, propagate, partition, check.
absl::StatusOr<sharding::PipelineResult> PartitionProgram(LoadedProgram program);

}  // namespace xlad::cli
