// A proof that replicas agree, whose cost depends on the number of mesh axes and not on the number of devices.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Whether devices that hold the same shard of a result provably hold the same values. A data-flow analysis computes for
// every value the parts of mesh axes on which it may depend. Two devices that differ only along other axes compute the
// same value.
//
//   x = f32[4,8] parameter(0)         // f32[8,8], split [{"dp"}, {}]: depends on "dp".
//   p = u32[] partition-id()          // Depends on every axis;
//   q = u32[] remainder(p, tp)        // with "tp" as the last axis of the mesh, q depends on "tp" only.
//   g = f32[8,8] all-gather(x), ...   // Over "dp": depends on nothing.
//
// False means that this analysis has no proof. For example, the values may differ, a collective's groups may not be
// those of its axes, or the cuts of axes may not nest or may result in more than 64 parts.
bool ReplicasAgreeByAxes(const PartitionedProgram& program, const hlo::Module& module);

}  // namespace xlad::sharding
