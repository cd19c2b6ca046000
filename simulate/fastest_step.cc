#include "simulate/fastest_step.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace xlad::simulate {

absl::StatusOr<PlacedStep> FastestStep(const hlo::Module& module, const std::vector<ProgramCollective>& collectives,
                                       const std::vector<Placement>& placements, const sharding::Mesh& mesh,
                                       const Slice& slice) {
  XLAD_CHECK(!placements.empty());
  std::vector<Placement> candidates = placements;
  if (slice.chips() > kMaxTimedChips) {
    candidates = CheapestFirst(placements, collectives, mesh, slice);
    candidates.resize(std::min(candidates.size(), kMaxTimedPlacements));
  }
  StepTimer timer(module, collectives, mesh, slice);
  std::optional<PlacedStep> fastest;
  absl::Status separated;  // The first error of a placement in which broken links separate the chips of a group.
  for (const Placement& placement : candidates) {
    absl::StatusOr<StepTime> time = timer.TimeOf(placement);
    if (!time.ok() && !absl::IsUnavailable(time.status())) return time.status();
    separated.Update(time.status());
    if (!time.ok() || (fastest.has_value() && time->us >= fastest->time.us)) continue;
    fastest = PlacedStep{placement, *std::move(time)};
  }
  if (!fastest.has_value()) return separated;
  return *std::move(fastest);
}

}  // namespace xlad::simulate
