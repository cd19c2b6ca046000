// The collectives of a compiled program, and the placements in the order of their cost.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/module.h"
#include "sharding/model/mesh.h"
#include "simulate/group.h"
#include "simulate/placement.h"

namespace xlad::simulate {

// A collective instruction, independent of the placement.
struct ProgramCollective {
  const hlo::Instruction* instruction = nullptr;
  double trips = 1;  // The number of executions per step.
  collectives::CollectiveKind kind = collectives::CollectiveKind::kAllReduce;
  int64_t bytes = 0;                               // The size of a device's input or output, whichever is larger.
  std::vector<int64_t> group;                      // The devices of the first group, which stands for all groups.
  std::vector<std::pair<int64_t, int64_t>> pairs;  // The pairs of a permutation.
};

// The collectives of the entry computation and of its loops and branches, in program order. Unimplemented for a
// collective that the simulation does not support, InvalidArgument for a permutation of devices that do not exist. Also
// returns the errors of compiler::DeviceGroups.
absl::StatusOr<std::vector<ProgramCollective>> CollectivesOf(const hlo::Module& module, int64_t devices);

// The number of executions of a loop's body, and whether it is assumed because it is not known before the loop runs.
struct Trips {
  double count = 1;
  bool is_assumed = false;
};
Trips TripsOf(const hlo::Instruction& loop);

// The shape of the group of a collective under a placement.
GroupShape ShapeOf(const ProgramCollective& collective, const Placement& placement, const sharding::Mesh& mesh,
                   const Slice& slice);

// The placements in ascending order of the sum of BoundUs (for permutations, of a similar estimate) over all
// executions. Placements with equal sums keep their order.
std::vector<Placement> CheapestFirst(const std::vector<Placement>& placements,
                                     const std::vector<ProgramCollective>& collectives, const sharding::Mesh& mesh,
                                     const Slice& slice);

}  // namespace xlad::simulate
