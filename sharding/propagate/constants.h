// Constants are cheap to compute, so users that need a constant with different shardings get copies of their own.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Maps each copy to the instruction from which it was made.
using CloneMap = absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*>;

// Must be called before propagation. Makes a copy for every user of constants, iotas, broadcasts of scalars, and small
// trees of elementwise ops, broadcasts and reshapes of these. A tuple or conditional gets a copy for each of its
// operands. Scalars stay shared, and so do annotated values. The first user in canonical order keeps the original.
CloneMap SplitConstants(ShardedModule* module);

// Must be called after propagation. Merges copies with equal operands and shardings into one instruction. Removes dead
// instructions, and entries of `shardings` for instructions that no longer exist.
void MergeConstants(ShardedModule* module, const CloneMap& clones);

}  // namespace xlad::sharding
