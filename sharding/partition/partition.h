// SPMD partitioning: from a sharded program to one program for every device, with collectives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// One collective of a partitioned program; `collective_id` is its channel_id in the text.
// The instruction carries the same facts as frontend attributes: xlad.axes="dp", xlad.because="line\nline",
// xlad.op="dot.15".
struct CollectiveInfo {
  int64_t collective_id = 0;
  std::string kind;                  // "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"
  AxisList axes;
  std::string op;                    // The instruction of the user's program that needs it.
  std::vector<std::string> because;  // Cause chain, nearest first.
  bool written_by_user = false;      // In a manual computation (shard_map).
};

struct Variant {
  std::unique_ptr<hlo::Module> module;  // Local shapes; num_partitions = devices of the mesh.
  std::vector<int64_t> devices;
};

struct PartitionedProgram {
  Mesh mesh;
  std::vector<Variant> variants;  // Usually one for all devices.
  std::vector<CollectiveInfo> collectives;
  // Of the entry: global shapes and how they are split (a leaf each, in order).
  std::vector<tensor::Shape> parameter_shapes, result_shapes;
  ValueSharding parameters, results;
  std::vector<Feed> feeds;
  std::vector<std::string> warnings;  // "replicated whole: ..." and the like.
};

// Where the values of the whole program are found in the partitioned one. Valid as long as both modules are.
struct Trace {
  struct Place {
    const hlo::Instruction* local = nullptr;
    TensorSharding sharding;  // Of an array; the propagated one, unreduced where its sum is pending.
  };
  absl::flat_hash_map<const hlo::Instruction*, Place> arrays;
  absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*> control;  // while, conditional
};

// `trace`: filled where it is not null.
absl::StatusOr<PartitionedProgram> Partition(const ShardedModule& module, Trace* trace = nullptr);

}  // namespace xlad::sharding
