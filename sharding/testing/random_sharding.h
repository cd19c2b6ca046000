// Random shardings for property tests: any legal one, sub-axes and sizes that do not divide included.
#pragma once

#include "base/random.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

TensorSharding RandomSharding(const Mesh& mesh, int64_t ndim, Random& random);

// A sharded module whose every instruction has a random sharding of its own (loops: one for what they carry), as no
// propagation would choose it: partitioning must be right for all.
ShardedModule WithRandomShardings(std::unique_ptr<hlo::Module> module, const Mesh& mesh, uint64_t seed);

}  // namespace xlad::sharding
