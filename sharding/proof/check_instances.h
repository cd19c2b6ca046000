// The proof by example: checks every distinct way in which an op was partitioned, on an instance that is small enough
// to be evaluated at every compile.
#pragma once

#include "sharding/partition/partition.h"
#include "sharding/proof/proven_instances.h"

namespace xlad::sharding {

struct InstanceCounts {
  int64_t proven = 0;   // Instances that were evaluated.
  int64_t known = 0;    // Instances that were proven before.
  int64_t skipped = 0;  // Ops without an instance: an array is too large, or the evaluator does not support the op.
};

// Visits each op of the program that has a split operand or result. Parameters, constants, data flow, control flow,
// custom calls, collectives and ops without a sharding rule are not visited. For each visited op, makes an instance: a
// module of that op with small sizes and the shardings of the program. Partitions the instance, and compares it with
// the same module on one device, unless `proven` contains an equal instance. Enters the instances that it proves into
// `proven`; null means a set that this process keeps. Two instances are equal if the mesh, the shardings and the text
// of the module are equal, that is, the types, sizes, attributes, scalar constants and called computations. Data
// movement, bitcasts and selections must agree in every bit, for inputs with special values. See Exactness for other
// ops. Returns Internal if the results differ; a later call checks the instance again.
absl::StatusOr<InstanceCounts> CheckInstances(const ShardedModule& program, ProvenInstances* proven = nullptr);

}  // namespace xlad::sharding
