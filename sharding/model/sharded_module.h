// A module with a mesh and a sharding for every value: Import creates it, Propagate fills it, Partition consumes it.
//
// Example: Import converts
//
//   HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=4]>}}
//   ENTRY main {
//     x = f32[8,16] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
//     w = f32[16,4] parameter(1)
//     ROOT y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
//   }
//
// to this module, in which the sharding of x is the annotation and the results are open:
//
//   mesh       dp=4
//   shardings  x: [{"dp"}, {}]
//   results    [{?}, {?}]
//
// Propagate completes the shardings and results:
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

// Result `result` becomes parameter `parameter` of the next step. These are indices into the array leaves of the entry
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
// entry computation and of the loop bodies, loop conditions and branches reached from it. Reducers, comparators and
// other scalar functions have no entries.
//
// The module has no calls and no annotation custom calls. A sharding constraint is a `copy` whose entry in `shardings`
// is the required sharding.
//
// The sharding of an operand may differ from the sharding that its user needs. This is allowed for the operand of a
// copy (constraint) or of an opt-barrier, the initial value of a while, the root of its body, and the root of a branch.
// It is also allowed for operands of an op that split one of its factors differently. The sharding of the entry's root
// may also differ from `results`. The partitioner reshards these values, leaf by leaf. A tuple, a get-tuple-element and
// the parameter of a branch always have the shardings of the values that they pass on. The result of a while, the
// parameter of its body and the parameter of its condition have equal shardings.
//
// Manual computations (jax.shard_map): every array inside is one shard along the manual axes, and only the other axes
// can split it further. Instructions inside have the frontend attribute xlad.manual_axes="dp,sp". Each array enters and
// leaves a manual computation through a custom call of its own. The call changes how a device's data is interpreted,
// but not the data:
//   xla.sdy.GlobalToLocalShape  takes an array whose dimensions are split by manual axes first and then by other axes,
//                               and returns its manual shard, split by the other axes;
//   xla.sdy.LocalToGlobalShape  is the inverse.
// The operand of a GlobalToLocalShape is a constraint with the sharding that the call requires.
struct ShardedModule {
  std::unique_ptr<hlo::Module> module;
  Mesh mesh;
  absl::flat_hash_map<const hlo::Instruction*, ValueSharding> shardings;
  // One sharding per array leaf of the entry's root: the annotated one after Import, the final one after Propagate.
  ValueSharding results;
  std::vector<Feed> feeds;
  // Used between Import and Propagate: sets of instructions that must get equal shardings, and the copies that are
  // propagation barriers.
  std::vector<std::vector<const hlo::Instruction*>> groups;
  absl::flat_hash_map<const hlo::Instruction*, BarrierDirection> barriers;
};

}  // namespace xlad::sharding
