// Resolves the schedule of one rank to links and memory.
#pragma once

#include <functional>

#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

// Returns the link to a peer's rank on a channel of the schedule.
using OpenScheduleLink = std::function<absl::StatusOr<ScheduleLink*>(int peer_rank, int channel)>;

// `spec` is the spec of the collective with the type of the plan's messages.
// Unimplemented, naming the operation, if an operation needs mapped memory or has several destinations, or if there is
// no kernel for the reduction. The collective must outlive the program. The caller sets the program's links and
// checksums.
absl::StatusOr<ScheduleProgram> CompileSchedule(const Collective& collective, const CollectiveSpec& spec,
                                                Schedule schedule, OpenScheduleLink open_link);

}  // namespace xlad::collectives
