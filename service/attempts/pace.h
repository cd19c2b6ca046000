// Keeps the workers of an attempt together if the program does not: without collectives, or with rare ones, a fast
// worker can be any number of steps ahead of a slow one. A checkpoint or a stop is at a step that the fastest worker
// has not begun, so it would be complete only when the slowest worker has run all these steps, too.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// Called at every tick for a job with a running attempt. If the fastest worker has been more than N steps ahead of the
// slowest one for 2 s, it gets a lease that ends N steps after the slowest one. N is what the slowest worker runs in
// 5 s, and at least 8. A worker that reaches the end of this lease waits, until it gets a longer lease. The pause also
// ends by itself if the lease is not repeated (worker/task_lease.h), so that no worker waits for a coordinator that has
// ended. Workers of older versions ignore a shorter lease, so workers count as waiting (Attempt::Pace::pauses) only
// if none is more than 2 N steps ahead.
void KeepTogether(Context& context, const Job& job);

}  // namespace xlad::service
