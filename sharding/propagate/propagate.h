// Sharding propagation: from the user's annotations to a sharding for every value.
//
// The algorithm is Shardy's hierarchy (https://openxla.org/shardy/propagation), as nested loops:
//
//   for each user priority p0, p1, ...:                        annotations of later priorities are hidden
//     for each round of op priorities:                         from ops that never cost communication to all ops
//       worklist of nodes, until no sharding changes:          sweeps forward and backward over the flow graph
//         propagate the factors of the node's rule             the aggressive strategy (factor_propagation.h)
//
// Example, mesh "dp=4": x is annotated, and everything else follows.
//
//   x = f32[8,16] parameter(0)      [{"dp"}, {}]     annotated
//   w = f32[16,4] parameter(1)      [{}, {}]
//   h = f32[8,4] dot(x, w)          [{"dp"}, {}]     factor i of dot, from operand 0
//   y = f32[8,4] tanh(h)            [{"dp"}, {}]     factor i of tanh, from operand 0
#pragma once

#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// The order in which annotations are propagated. "State" is a parameter that a result feeds or aliases, such as the
// weights of a training step; all other parameters and the constraints are "data".
enum class PropagationOrder {
  kAllAtOnce,
  // Data first and state afterwards. If weights and batch are split over the same axis, activations are then split
  // along the batch, and weights are all-gathered (fully sharded data parallelism).
  kStateLast,
};
// Whether the two orders may lead to different shardings: an axis is annotated both on state and on data, and the user
// gave no priorities.
bool OrderCanMatter(const ShardedModule& imported);

// Sets `shardings` and `results` of an imported module. Every axis has an origin chain that ends at an annotation. On
// return all dimensions are closed, values without axes are replicated, and a result that feeds a parameter has that
// parameter's sharding. InvalidArgument if the annotations of a sharding group contradict each other.
absl::Status Propagate(ShardedModule* module, PropagationOrder order = PropagationOrder::kAllAtOnce);

// The module as HLO text with the propagated shardings in xla.sdy.sharding attributes: `xlad opt --stage propagated`.
// Import reads the text back.
std::string PrintPropagated(const ShardedModule& module);

}  // namespace xlad::sharding
