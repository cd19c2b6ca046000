// The choice of a placement by the time of the step.
#pragma once

#include <vector>

#include "base/status.h"
#include "simulate/placement.h"
#include "simulate/step.h"

namespace xlad::simulate {

struct PlacedStep {
  Placement placement;
  StepTime time;
};

// The largest topology for which the step is timed under every placement.
inline constexpr int kMaxTimedChips = 256;

// On larger topologies, only this many placements are timed, the first ones of CheapestFirst.
inline constexpr size_t kMaxTimedPlacements = 16;

// The placement with the shortest step of those that are timed, and the first one if several are equal. Placements
// whose groups are separated by broken links are omitted; Unavailable if there are no others. Returns the other errors
// of StepTimer. `collectives` is the result of CollectivesOf(module); `placements` must not be empty.
absl::StatusOr<PlacedStep> FastestStep(const hlo::Module& module, const std::vector<ProgramCollective>& collectives,
                                       const std::vector<Placement>& placements, const sharding::Mesh& mesh,
                                       const Slice& slice);

}  // namespace xlad::simulate
