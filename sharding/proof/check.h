// The proof that runs at every compile: the structure of the partitioned program, and each distinct way in which an op
// was partitioned, on a small instance.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Structure (check_structure.h): groups contain every device exactly once, partial results are reduced exactly once,
// replicas agree. Then instances (check_instances.h). Results for instances are kept in the process. An error is a bug
// in xlad, and says which instruction was partitioned wrongly.
absl::Status Check(const ShardedModule& before, const PartitionedProgram& after);

}  // namespace xlad::sharding
