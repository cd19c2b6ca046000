// What a program with manual computations (jax.shard_map) means: they have no meaning on one device.
#pragma once

#include "sharding/import/import.h"
#include "sharding/partition/partition.h"
#include "sharding/propagate/propagate.h"

namespace xlad::sharding {

bool HasManualComputations(const hlo::Module& module);

// A propagated program, what it was partitioned into, and what is where. The map points into both.
struct MappedProgram {
  ShardedModule whole;
  PartitionedProgram program;
  SourceMap source_map;
};

// The program with nothing split but what its manual computations split by hand: every annotation is dropped, every
// other value is whole on every device. Compared with it a partitioning is checked for all that xlad added.
absl::StatusOr<MappedProgram> PartitionManualOnly(std::unique_ptr<hlo::Module> module, const ImportOptions& options);

}  // namespace xlad::sharding
