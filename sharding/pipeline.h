// Verify, import, propagate, partition, check: the table of passes from a user's program to a partitioned one.
#pragma once

#include "sharding/partition/partition.h"
#include "sharding/propagate/propagate.h"

namespace xlad::sharding {

struct PipelineOptions {
  ImportOptions import;
  bool check = true;
};

struct PipelineResult {
  ShardedModule propagated;
  PartitionedProgram partitioned;
};

absl::StatusOr<PipelineResult> RunPipeline(std::unique_ptr<hlo::Module> module, const PipelineOptions& options);

}  // namespace xlad::sharding
