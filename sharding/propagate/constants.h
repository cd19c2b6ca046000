// Constants are cheap to compute, so users that need different shardings of a constant get their own copies.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Maps each copy to the instruction from which it was made.
using CloneMap = absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*>;

// Must be called before propagation. Makes a copy for every user of constants, iotas, broadcasts of scalars, and trees
// of at most 64 instructions (elementwise ops, broadcasts and reshapes) whose leaves are any of these. A tuple or
// conditional gets a copy for each of its operands. Scalars and annotated values stay shared. The first user in
// canonical order keeps the original.
CloneMap SplitConstants(ShardedModule* module);

// Must be called after propagation. Merges copies with equal operands and shardings into one instruction. Removes dead
// instructions, and entries of `shardings` for instructions that no longer exist.
void MergeConstants(ShardedModule* module, const CloneMap& clones);

}  // namespace xlad::sharding
