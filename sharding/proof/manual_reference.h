// The reference for programs with manual computations (jax.shard_map), which cannot run on one device.
#pragma once

#include "sharding/import/import.h"
#include "sharding/partition/partition.h"

namespace xlad::sharding {

bool HasManualComputations(const hlo::Module& module);

// A propagated program, its partitioned form, and the map between them, which points into both.
struct MappedProgram {
  ShardedModule whole;
  PartitionedProgram program;
  SourceMap source_map;
};

// Partitions the program with only the splits that its manual computations make: all annotations are removed, and every
// other value is replicated. The splits that xlad adds are then checked by comparison with this program.
absl::StatusOr<MappedProgram> PartitionManualOnly(std::unique_ptr<hlo::Module> module, const ImportOptions& options);

}  // namespace xlad::sharding
