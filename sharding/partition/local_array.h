// The arrays that partitioning works on: a global array, how it is sharded, and the local instruction that holds one
// device's shard.
#pragma once

#include <string>
#include <vector>

#include "hlo/analysis/leaves.h"
#include "hlo/module.h"
#include "sharding/model/axes.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// A global array and the local instruction that computes a device's shard of it. The shard has ceil(size / shards)
// elements in each dimension. Elements beyond the end of the global dimension are padding and may hold any value.
struct LocalArray {
  hlo::Instruction* local = nullptr;
  tensor::Shape global;
  TensorSharding sharding;
  OriginPtr partial;  // Why the value is a partial result, or null if sharding.unreduced is empty.
};
using LocalValue = std::vector<LocalArray>;  // One entry per array leaf of the value's shape, depth first.

// The instruction of the user's program that needs a reshard, and what it needs.
struct ReshardCause {
  const hlo::Instruction* op = nullptr;
  std::string what;  // "operand 1 is needed as [{}, {"tp"}]"
};

// The shape `global` with every array leaf replaced by its shard. `shardings` has one entry per array leaf.
hlo::Shape LocalStructure(const hlo::Shape& global, const ValueSharding& shardings);
// The shape of the array's shard.
hlo::Shape LocalShape(const LocalArray& array);
// The local instructions of the arrays.
std::vector<hlo::Instruction*> Locals(const std::vector<LocalArray>& arrays);

// The origin of `axis` in `sharding`, or null if the axis splits no dimension or its origin is unknown.
OriginPtr OriginOf(const TensorSharding& sharding, const AxisRef& axis);
// The sharding that splits the dimensions over `dims`. The origin of an axis is its origin in `first`, or, if `first`
// has none, its origin in `second`.
TensorSharding WithOrigins(const DimensionAxes& dims, const TensorSharding& first, const TensorSharding& second);

}  // namespace xlad::sharding
