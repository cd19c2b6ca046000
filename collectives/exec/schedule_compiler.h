// Resolves the schedule of one rank to links and memory.
#pragma once

#include <functional>

#include "collectives/exec/schedule_run.h"

namespace xlad::collectives {

// Returns the link to a peer's rank on a channel of the schedule.
using OpenScheduleLink = std::function<absl::StatusOr<ScheduleLink*>(int peer_rank, int channel)>;

struct CollectiveToCompile {
  const Collective* collective = nullptr;
  int spec_index = 0;
  CollectiveSpec spec;  // The spec of the collective, with the type of the plan's messages.
};

// Unimplemented, naming the operation, if an operation needs mapped memory or has several destinations, or if there is
// no kernel for the reduction. The collective must outlive the program. The caller sets the program's links and
// checksums.
absl::StatusOr<ScheduleProgram> CompileSchedule(const CollectiveToCompile& of, Schedule schedule,
                                                OpenScheduleLink open_link);

}  // namespace xlad::collectives
