#include "simulate/fastest_step.h"

#include <utility>

namespace xlad::simulate {

absl::StatusOr<PlacedStep> FastestStep(const hlo::Module& module, const std::vector<ProgramCollective>& collectives,
                                       const std::vector<Placement>& placements, const sharding::Mesh& mesh,
                                       const Slice& slice) {
  StepTimer timer(module, collectives, mesh, slice);
  const bool has_choice = placements.size() > 1;
  if (has_choice && slice.chips() > kMaxTimedChips) {
    PlacedStep cheapest{CheapestOf(placements, collectives, mesh, slice), {}};
    XLAD_ASSIGN_OR_RETURN(cheapest.time, timer.TimeOf(cheapest.placement));
    return cheapest;
  }
  absl::StatusOr<PlacedStep> fastest = absl::InternalError("there are no placements");
  for (const Placement& placement : placements) {
    absl::StatusOr<StepTime> time = timer.TimeOf(placement);
    if (!time.ok() && !absl::IsUnavailable(time.status())) return time.status();
    if (!time.ok()) {
      if (!fastest.ok()) fastest = time.status();
    } else if (!fastest.ok() || time->us < fastest->time.us) {
      fastest = PlacedStep{placement, *std::move(time)};
    }
  }
  return fastest;
}

}  // namespace xlad::simulate
