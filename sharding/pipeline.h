// The sharding pipeline: the table of passes from a user's program to the partitioned one, and the driver that runs it.
//
//   verify                  the module is well formed
//   import                  annotations become a sharded module (sharding/import)
//   propagate               every value gets a sharding (sharding/propagate)
//   partition               one program for every device, with collectives (sharding/partition)
//   propagate-alternative   propagates a copy of the imported module, the alternative, in the order kStateLast
//   partition-alternative   partitions the alternative
//   choose                  keeps the alternative if its step costs less, or if only it has all must-aliases
//   check                   proves the partitioned program (sharding/proof)
//
// The three passes for the alternative run only if the order of propagation can matter (OrderCanMatter). The first two
// run in a thread of their own, concurrently with "propagate" and "partition", unless the program is dumped.
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
  bool check = true;  // Whether the pass "check" proves the program.
  // If not empty, the program is written to this directory after every pass ("2.propagate.hlo"). The alternative is
  // written after the two passes that change it, and the program that is kept after the pass "choose".
  std::string dump_directory;
};

struct PipelineResult {
  ShardedModule propagated;
  PartitionedProgram partitioned;
  // One entry for each pass that ran. Passes of the alternative run in a thread of their own, so the sum of the times
  // can exceed the time of the pipeline.
  std::vector<PassTime> times;
};

// Runs the pipeline. If a pass fails, returns its error without running the later passes. Passes of the alternative
// that run in their own thread are completed first.
absl::StatusOr<PipelineResult> RunPipeline(std::unique_ptr<hlo::Module> module, const PipelineOptions& options);

}  // namespace xlad::sharding
