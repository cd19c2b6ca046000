// Chooses where partial sums are reduced: at the places with the lowest cost, which can be later than the ops that make
// the partial sums.
//
// An op whose contracted dimension is split leaves a partial sum on every device, for example a weight's gradient if
// the batch is split. The ops that follow are often linear, that is, they can be computed on the partial sums. Examples
// are an addition of two partial sums, a slice, and the accumulator of a loop, which would otherwise be reduced in
// every iteration:
//
//   body { ...
//          g = f32[8,8] dot(x, y)        // x and y are split over "dp" along the contracted dimension.
//          sum2 = f32[8,8] add(sum, g)   // Linear: sum stays a partial sum along "dp".
//          ROOT t = (...) tuple(..., sum2) }
//   w = (...) while(t0), body=body
//   total = f32[8,8] get-tuple-element(w)
//   r = f32[8,8] tanh(total)             // Not linear: `total` is all-reduced here, once.
//
// Every path from an op that makes partial sums to a use that is not linear must contain one reduction. The cheapest
// set of places is a minimum s-t cut of the data-flow graph. One run of a reduction costs the bytes that it sends plus
// a constant for latency. The cost of a place is this cost times the number of runs. The cut is found by Dinic's
// algorithm (E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation",
// 1970), for each mesh axis separately.
#pragma once

#include <functional>

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

struct DeferredReductions {
  // Ops that are computed on partial sums, and the axes along which the sums are partial. The operands in which such an
  // op is linear are partial sums.
  absl::flat_hash_map<const hlo::Instruction*, AxisList> computed_on_partials;
  // Values whose users get partial sums: for each leaf, the axes along which it is unreduced. If a loop is listed, so
  // are the parameters of its computations.
  absl::flat_hash_map<const hlo::Instruction*, std::vector<AxisList>> unreduced_results;
};

// The axes along which an op makes its result a partial sum.
using PartialSumAxesOf = std::function<AxisList(const hlo::Instruction&)>;

// Chooses where the partial sums of a propagated module are reduced.
DeferredReductions DeferReductions(const ShardedModule& module, const PartialSumAxesOf& partial_sum_axes);

// The sharding with `axes` unreduced. They are removed from the dimensions.
TensorSharding WithUnreduced(TensorSharding sharding, const AxisList& axes);

// The parts of `axes` that do not overlap `taken`, or all of `axes` if the cuts of the two lists do not nest.
AxisList Without(const Mesh& mesh, const AxisList& axes, const AxisList& taken);

// The parameters of a computation and all instructions that its root or its side effects need, in the computation's
// order.
std::vector<const hlo::Instruction*> LiveInstructions(const hlo::Computation& computation);

}  // namespace xlad::sharding
