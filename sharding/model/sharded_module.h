// A module with a mesh and a sharding for every value: Import creates it, Propagate fills it, Partition consumes it.
//
// Example: what Import makes of
//
//   HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=4]>}}
//   ENTRY main {
//     x = f32[8,16] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
//     w = f32[16,4] parameter(1)
//     ROOT y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
//   }
//
//   mesh       dp=4
//   shardings  x: [{"dp"}, {}]                                  (the annotation)
//   results    [{?}, {?}]                                       (open)
//
// and what Propagate leaves in it:
//
//   shardings  x: [{"dp"}, {}]   w: [{}, {}]   y: [{"dp"}, {}]
//   results    [{"dp"}, {}]
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// Result `result` becomes parameter `parameter` of the next step. Both number the array leaves of the entry
// computation's results and parameters, depth first.
struct Feed {
  int64_t result = 0;
  int64_t parameter = 0;
};

// The shardings of a value: one for each array leaf of its shape, depth first. Tokens have none.
using ValueSharding = std::vector<TensorSharding>;

// The directions in which propagation may cross a barrier (xla.sdy.PropagationBarrier).
enum class BarrierDirection { kNone, kForward, kBackward, kBoth };

// `shardings` holds the user's annotations after Import. After Propagate it has an entry for every instruction of the
// entry computation and of the loop bodies, loop conditions and branches reached from it; reducers, comparators and
// other scalar functions have no entries.
//
// The module has no calls and no annotation custom calls. A sharding constraint is a `copy` whose entry in `shardings`
// is the required sharding.
//
// An operand's sharding may differ from the one that its user needs in these places: the operand of a copy
// (constraint), the initial value of a while and the root of its body, the root of a branch, the operand of an
// opt-barrier, operands of an op whose factors disagree, and the entry's root compared with `results`. The partitioner
// reshards there, leaf by leaf. A tuple, a get-tuple-element and the parameter of a branch always have the shardings of
// the values that they pass on. The result of a while, the parameter of its body and the parameter of its condition
// have equal shardings.
//
// Manual computations (jax.shard_map): the arrays inside are single shards of the manual axes and can be split over the
// other axes only. Instructions inside have the frontend attribute xlad.manual_axes="dp,sp". At the borders are custom
// calls of one array each, which change how a device's data is read but not the data:
//   xla.sdy.GlobalToLocalShape  takes an array whose dimensions are split by manual axes first and then by other axes,
//                               and returns its manual shard, split by the other axes;
//   xla.sdy.LocalToGlobalShape  is the inverse.
// The operand of a GlobalToLocalShape is a constraint with the sharding that the border requires.
struct ShardedModule {
  std::unique_ptr<hlo::Module> module;
  Mesh mesh;
  absl::flat_hash_map<const hlo::Instruction*, ValueSharding> shardings;
  ValueSharding results;  // The entry's array leaves: annotated after Import, decided after Propagate.
  std::vector<Feed> feeds;
  // Used between Import and Propagate: sets of instructions that must get equal shardings, and the copies that are
  // propagation barriers.
  std::vector<std::vector<const hlo::Instruction*>> groups;
  absl::flat_hash_map<const hlo::Instruction*, BarrierDirection> barriers;
};

}  // namespace xlad::sharding
