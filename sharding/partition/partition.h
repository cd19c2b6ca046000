// SPMD partitioning: from a sharded program to the program that every device runs, with collectives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"
#include "sharding/partition/op_family.h"

namespace xlad::sharding {

// Identifies a collective of a partitioned program. Its value is the instruction's channel_id.
enum class CollectiveId : int64_t {};
constexpr int64_t ChannelOf(CollectiveId id) { return static_cast<int64_t>(id); }

// A collective of a partitioned program. The instruction has the same information in frontend attributes:
// xlad.axes="dp", xlad.because="line\nline", xlad.op="dot.15".
struct CollectiveInfo {
  CollectiveId collective_id{};
  std::string kind;                  // The opcode, such as "all-reduce".
  AxisList axes;
  std::string op;                    // The instruction of the user's program that needs or is the collective.
  std::vector<std::string> because;  // The chain of causes, from `op` to the user's annotation.
  bool written_by_user = false;      // Whether the user wrote it in a manual computation (shard_map).
};

// A program and the devices that run it.
struct Variant {
  std::unique_ptr<hlo::Module> module;  // Has local shapes; num_partitions is the number of devices of the mesh.
  std::vector<int64_t> devices;
};

struct PartitionedProgram {
  Mesh mesh;
  std::vector<Variant> variants;  // One variant for all devices.
  std::vector<CollectiveInfo> collectives;
  // The global shapes and shardings of the entry's parameters and results, one per array leaf.
  std::vector<tensor::Shape> parameter_shapes, result_shapes;
  ValueSharding parameters, results;
  std::vector<Feed> feeds;
  std::vector<std::string> warnings;  // "sort.3: gathered over tp: ..."
};

// The collectives of a program, by the channel_id of their instructions. The pointers refer to `program`.
using CollectivesByChannel = absl::flat_hash_map<int64_t, const CollectiveInfo*>;
CollectivesByChannel ByChannel(const PartitionedProgram& program);

// Maps instructions of the source program to those of the partitioned program that compute their values. Its pointers
// are valid while both modules exist.
struct SourceMap {
  struct ShardOfValue {
    const hlo::Instruction* local = nullptr;
    TensorSharding sharding;  // The propagated sharding; axes of deferred reductions are unreduced.
  };
  absl::flat_hash_map<const hlo::Instruction*, ShardOfValue> arrays;
  absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*> control;  // Loops and conditionals.
};

// Partitions a propagated program. `families` says how every op is partitioned (FamilyOf of ops/families.h). Fills
// `source_map` if it is not null. On a mesh of one device, the result is a copy of the program, and `source_map` stays
// empty. Errors: Unimplemented for an op that cannot be partitioned, InvalidArgument for a program of several replicas,
// Internal if the shardings contradict each other.
absl::StatusOr<PartitionedProgram> Partition(const ShardedModule& module, FamilyTable families,
                                             SourceMap* source_map = nullptr);

}  // namespace xlad::sharding
