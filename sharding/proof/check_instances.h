// The proof by example: every distinct way in which an op was partitioned, on an instance small enough to be evaluated
// at every compile.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

struct InstanceCounts {
  int64_t proven = 0;   // Instances that were evaluated.
  int64_t known = 0;    // Instances that this process has evaluated before.
  int64_t skipped = 0;  // Ops without an instance: arrays too large, or an op that the evaluator does not have.
};

// For each distinct (opcode, attributes, operand shardings, result sharding) of the program: a module of that one op
// with small sizes is partitioned, and compared with the same module on one device. Data movement, bitcasts and
// selections must agree in every bit, for inputs with special values. See Exactness for other ops.
absl::StatusOr<InstanceCounts> CheckInstances(const ShardedModule& program);

}  // namespace xlad::sharding
