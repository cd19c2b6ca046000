// Keeps the workers of an attempt together if the program does not: without collectives, or with rare ones, a fast
// worker can be any number of steps ahead of a slow one. A checkpoint or a stop is at a step that the fastest worker
// has not begun, so it would be complete only when the slowest one has made up for all of them.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// Called at every tick for a job with a running attempt. Sends a worker a shorter lease if it has been further ahead of
// the slowest one than this one runs in kMaxAheadMs. A worker that reaches the end of this lease waits. The pause ends
// by itself if the lease is not repeated (worker/task_lease.h), so that no worker waits for a coordinator that
// has ended. Workers of older versions ignore a shorter lease.
void KeepTogether(Context& context, const Job& job);

}  // namespace xlad::service
