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

// On larger topologies, the search ends after this many placements whose groups are separated by broken links.
inline constexpr int kMaxSeparated = 16;

// The placement with the shortest step, and the first one if several are equal. If the slice has more than
// kMaxTimedChips chips, the placement is the first one of CheapestFirst, because timing all of them would take too
// long. Placements whose groups are separated by broken links are omitted; Unavailable if the search finds no other
// one. Returns the other errors of StepTimer. `collectives` is the result of CollectivesOf(module); `placements` must
// not be empty.
absl::StatusOr<PlacedStep> FastestStep(const hlo::Module& module, const std::vector<ProgramCollective>& collectives,
                                       const std::vector<Placement>& placements, const sharding::Mesh& mesh,
                                       const Slice& slice);

}  // namespace xlad::simulate
