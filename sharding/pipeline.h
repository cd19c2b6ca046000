// The sharding pipeline: the table of passes from a user's program to the partitioned one, and the driver that runs it.
//
//   verify                  the module is well formed
//   import                  annotations become a sharded module (sharding/import)
//   propagate               every value gets a sharding (sharding/propagate)
//   partition               one program for every device, with collectives (sharding/partition)
//   propagate-alternative   the imported module again, in the other order of propagation
//   partition-alternative
//   choose                  keeps the alternative if a step of it costs less
//   check                   proves the partitioned program (sharding/proof)
//
// The three passes for the alternative run only if the order of propagation can matter (OrderCanMatter).
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
  bool check = true;           // Run the pass "check".
  std::string dump_directory;  // Every pass writes the program's text here, "2.propagate.hlo"; empty: no dumps.
};

struct PipelineResult {
  ShardedModule propagated;
  PartitionedProgram partitioned;
  std::vector<PassTime> times;  // One entry for each pass that ran.
};

// Runs the pipeline. Errors are those of the first pass that fails.
absl::StatusOr<PipelineResult> RunPipeline(std::unique_ptr<hlo::Module> module, const PipelineOptions& options);

}  // namespace xlad::sharding
