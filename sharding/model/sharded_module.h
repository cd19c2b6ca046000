// A module with a mesh and a sharding for every value: what propagation fills and partitioning consumes.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// Result r feeds parameter p of the next step. Both count flattened leaves of the entry computation.
struct Feed {
  int64_t result = 0;
  int64_t parameter = 0;
};

// A value's shardings, one for each leaf array of its shape, in order (depth first; tokens have none).
using ValueSharding = std::vector<TensorSharding>;

// Which way propagation may cross a barrier (xla.sdy.PropagationBarrier).
enum class BarrierDirection { kNone, kForward, kBackward, kBoth };

// After Import `shardings` holds what the user annotated; after Propagate it holds every instruction of the entry
// and of the bodies, conditions and branches reached from it (not of reducers, comparators and the like).
//
// The module has no calls and no annotation custom calls. A sharding constraint is a `copy` whose sharding in the
// table is the required one. An operand's sharding may differ from what its user needs: a copy (constraint),
// while (initial value; the body's root), conditional (a branch's root), opt-barrier, an op whose factors disagree,
// and the entry's root against `results`. There the partitioner reshards, leaf by leaf. tuple, get-tuple-element
// and a branch's parameters always have the shardings of what they pass on; a while's result, its body's
// parameter and its condition's parameter are the same.
//
// Manual computations (jax.shard_map): inside, arrays are one manual shard and are split over the remaining axes only;
// instructions there have the frontend attribute xlad.manual_axes="dp,sp". Their borders are custom calls of one array
// that leave every device's data as it is and only read it differently: xla.sdy.GlobalToLocalShape takes an array split
// by manual axes (first in each dimension) and free ones to its manual shard split by the free ones,
// xla.sdy.LocalToGlobalShape the other way. In front of the first stands a copy that asks for the right split.
struct ShardedModule {
  std::unique_ptr<hlo::Module> module;
  Mesh mesh;
  absl::flat_hash_map<const hlo::Instruction*, ValueSharding> shardings;
  ValueSharding results;  // Of the entry's leaves, as annotated or propagated.
  std::vector<Feed> feeds;
  // Between Import and Propagate: instructions that must end with one sharding, and barriers (copies).
  std::vector<std::vector<const hlo::Instruction*>> groups;
  absl::flat_hash_map<const hlo::Instruction*, BarrierDirection> barriers;
};

}  // namespace xlad::sharding
