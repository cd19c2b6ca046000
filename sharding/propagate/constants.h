// Constants are free to compute anywhere, so users that need them split differently each get their own.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Which instruction a clone was made from.
using CloneMap = absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*>;

// Gives every user, and every element of a tuple, its own copy of constants, iotas, broadcasts of scalars, and trees of
// elementwise ops and broadcasts over these. Scalars stay shared. Invalidates nothing: originals keep their first user
// (in canonical order).
CloneMap SplitConstants(ShardedModule* module);

// After propagation: copies that ended with the same shardings become one again. Drops what is not needed from the
// graph and from the table of shardings.
void MergeConstants(ShardedModule* module, const CloneMap& clones);

}  // namespace xlad::sharding
