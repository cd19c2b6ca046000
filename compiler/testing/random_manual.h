// Random manual computations (jax.shard_map).
#pragma once

#include "compiler/testing/random_control.h"
#include "sharding/model/mesh.h"

namespace xlad::compiler {

// A manual computation on some axes of the mesh: its operands are values of the pool. It has random instructions,
// collectives over these axes and manual computations on other axes, and returns one value. `channels` counts the
// collectives of the module. May return an empty value.
Sample RandomManual(RandomControl& random, hlo::Builder& builder, const Pool& pool, const sharding::Mesh& mesh,
                    int64_t* channels);

}  // namespace xlad::compiler
