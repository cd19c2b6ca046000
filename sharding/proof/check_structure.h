// Checks of the structure of a partitioned module: its collectives, its partial results, and which devices provably
// hold the same values.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Every collective that partitioning recorded has a channel of its own and a cause. Every collective has either groups
// of equal size that contain each device exactly once, or pairs in which each device is at most once a source and at
// most once a target.
absl::Status CheckCollectives(const PartitionedProgram& program, const hlo::Module& module);

// Devices that hold the same shard of a result must provably hold the same values. A partial sum that is never reduced,
// or a shard that is used as if it were the global array, violates this:
//
//   x = f32[4] parameter(0)                                  // f32[8], split over "dp".
//   s = f32[] reduce(x, zero), dimensions={0}, to_apply=add  // Differs between devices, but must be replicated.
//
// Loops and conditionals that contain collectives must have the same predicate on all devices, or some devices would
// wait forever. The proof is a data-flow analysis on mesh axes (axis_dependence.h). If it finds no proof, values are
// numbered for every device (global value numbering: Alpern, Wegman, Zadeck, "Detecting equality of variables in
// programs", 1988). Two devices have the same number for an instruction only if it computes the same function of equal
// values on both devices.
absl::Status CheckReplicasAgree(const PartitionedProgram& program, const hlo::Module& module);

// Every partial result is reduced exactly once along each of its axes. Before the reduction, a partial sum is used only
// by ops that are linear in it (sharding/rules/linear.h), and a partial result of another reduction only by ops that
// move elements or reinterpret their bits. No other value is reduced by a collective that partitioning made. An op that
// makes a partial result is marked:
//
//   d = f32[4,8] dot(x, y), frontend_attributes={xlad.partial="tp"}
//   n = f32[4,8] negate(d)                                    // Linear: partial along "tp" too.
//   r = f32[4,8] all-reduce(n), to_apply=add                  // Over "tp": no longer partial.
absl::Status CheckPartials(const PartitionedProgram& program, const hlo::Module& module);

}  // namespace xlad::sharding
