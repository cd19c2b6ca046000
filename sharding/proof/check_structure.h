// Structure of a partitioned module: its collectives, and which devices provably hold the same values.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Every collective: a channel of its own, groups that hold each device exactly once, permutes that are one to one, a
// cause.
absl::Status CheckCollectives(const PartitionedProgram& program, const hlo::Module& module);

// Devices that hold the same part of a result must provably hold the same values. Proof by numbering values for every
// device: two devices have the same number for an instruction only where it computes the same from the same. A partial
// sum that was never reduced, or a shard used as if it were whole, has other numbers. Predicates of loops and branches
// with collectives inside must have one number on all devices.
absl::Status CheckReplicasAgree(const PartitionedProgram& program, const hlo::Module& module);

// Every partial result (marked xlad.partial="tp" where an op makes one) is reduced exactly once along each of its axes,
// before anything but what is linear in it (linear.h) sees it; and nothing else is reduced by a collective of
// partitioning.
absl::Status CheckPartials(const PartitionedProgram& program, const hlo::Module& module);

}  // namespace xlad::sharding
