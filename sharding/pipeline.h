// Verify, import, propagate, partition, check: the table of passes from a user's program to a partitioned one.
#pragma once

#include <string>
#include <vector>

#include "base/pass_time.h"
#include "sharding/import/import.h"
#include "sharding/partition/partition.h"
#include "sharding/propagate/propagate.h"

namespace xlad::sharding {

struct PipelineOptions {
  ImportOptions import;
  bool check = true;
  std::string dump_folder;  // Where not empty, every pass leaves the program's text there: "2.propagate.hlo".
};

struct PipelineResult {
  ShardedModule propagated;
  PartitionedProgram partitioned;
  std::vector<PassTime> times;
};

absl::StatusOr<PipelineResult> RunPipeline(std::unique_ptr<hlo::Module> module, const PipelineOptions& options);

}  // namespace xlad::sharding
