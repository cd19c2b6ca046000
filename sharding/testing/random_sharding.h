// Random legal shardings for property tests. They contain sub-axes, and the number of shards need not divide the size
// of a dimension.
#pragma once

#include "base/random.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// A random sharding of a tensor with `ndim` dimensions.
TensorSharding RandomSharding(const Mesh& mesh, int64_t ndim, Random& random);

// A sharded module in which every instruction has its own random sharding, except that a loop and the parameters of its
// condition and body share one. Propagation would not choose such shardings, but partitioning must be correct for them.
ShardedModule WithRandomShardings(std::unique_ptr<hlo::Module> module, const Mesh& mesh, uint64_t seed);

}  // namespace xlad::sharding
