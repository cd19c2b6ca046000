// Random manual computations (jax.shard_map).
#pragma once

#include "compiler/testing/random_control.h"
#include "sharding/model/mesh.h"

namespace xlad::compiler {

// Values of the pool enter a manual computation on some axes of the mesh, meet random instructions and collectives over
// these axes there, also manual computations on further axes, and one value comes back. `channels` counts the
// collectives of the module. May return an empty value.
Sample RandomManual(RandomControl* random, hlo::Builder* builder, const Pool& pool, const sharding::Mesh& mesh,
                    int64_t* channels);

}  // namespace xlad::compiler
