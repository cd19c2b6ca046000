// The proof that runs at every compile: the structure of the partitioned program, and each distinct way in which an op
// was partitioned, on a small instance.
#pragma once

#include "sharding/partition/partition.h"
#include "sharding/proof/proven_instances.h"

namespace xlad::sharding {

// Checks that the partitioned module is well formed. Checks its structure (check_structure.h): groups contain every
// device exactly once, partial results are reduced exactly once, and replicas agree. The last check is omitted for a
// program with manual computations, because the shardings that these declare for their results cannot be proven. Then
// checks the instances (check_instances.h) that `proven` does not contain, unless the mesh has one device. An
// error names the instruction that was partitioned wrongly. It is a bug in xlad, unless the instruction's reducer is
// not associative or starts from a value that is not its identity.
absl::Status Check(const ShardedModule& before, const PartitionedProgram& after, ProvenInstances* proven = nullptr);

}  // namespace xlad::sharding
