// The proof by example: each distinct local rewrite, on an instance small enough to run at every compile.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

struct InstanceCounts {
  int64_t proven = 0;    // Instances run now.
  int64_t known = 0;     // Seen before in this process.
  int64_t skipped = 0;   // Too large and not to be made smaller, control flow, or not evaluable.
};

// Each distinct (opcode and attributes, operand shardings -> result sharding) of the program: a module of that one op
// with sizes made small in a way that keeps what divides and what does not, partitioned, and run against the whole.
absl::StatusOr<InstanceCounts> CheckInstances(const ShardedModule& program);

}  // namespace xlad::sharding
