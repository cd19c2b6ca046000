// The proof at every compile: structure of every collective, and each distinct local rewrite on a small instance.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Structure: groups cover every device exactly once, partial sums are resolved exactly once, shapes fit. Then each
// distinct (instruction kind, operand shardings -> result sharding) on a small instance, partitioned against whole
// on the evaluator; memoised in the process. An error here is xlad's own fault and says which instruction.
absl::Status Check(const ShardedModule& before, const PartitionedProgram& after);

}  // namespace xlad::sharding
