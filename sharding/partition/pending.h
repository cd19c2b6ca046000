// Where partial results are made whole: as late as is cheap, not at once.
//
// An op whose contraction is split leaves the parts of a sum on the devices (a gradient over a batch that is split).
// What follows is often linear in it: a sum with other such results, a slice, and above all the accumulator of a loop,
// which would otherwise be reduced at every iteration. The linear part of the program behind every such op is a graph;
// a reduction must stand on each of its ways to something that is not linear; and the cheapest set of places is a
// minimum cut, where a place costs the bytes sent there times how often it runs.
#pragma once

#include <functional>

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Axes along which values wait to be summed.
struct PendingSums {
  // Ops that are computed on parts of sums; of the operands, those in which the op is linear.
  absl::flat_hash_map<const hlo::Instruction*, AxisList> operands;
  // Values that stay unreduced, leaf by leaf: what users get. For a loop also of its parameters.
  absl::flat_hash_map<const hlo::Instruction*, std::vector<AxisList>> results;
};

// The axes along which an op's result is the part of a sum before anything is done about it.
using PartialAxesOf = std::function<AxisList(const hlo::Instruction&)>;

PendingSums PlacePendingSums(const ShardedModule& module, const PartialAxesOf& partial);

// The sharding of a value that waits: its axes removed from the dimensions, and unreduced.
TensorSharding Pending(TensorSharding sharding, const AxisList& axes);

// The parts of `axes` that `taken` does not have; all of `axes` where the cuts of the two do not nest.
AxisList Without(const Mesh& mesh, const AxisList& axes, const AxisList& taken);

// What the root or a side effect needs, and the parameters, in the computation's order.
std::vector<const hlo::Instruction*> LiveInstructions(const hlo::Computation& computation);

}  // namespace xlad::sharding
