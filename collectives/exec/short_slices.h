// Time slices of threads that mostly wait for messages.
#pragma once

#include <cstdint>

namespace xlad::collectives {

// Asks the system for the shortest time slices for the calling thread. The thread then runs soon after a message has
// woken it, even if other threads compute on all cores. With the usual slices it would wait for about 3 ms. It also
// runs sooner after a yield. Its share of the cores does not grow. Returns the slice in nanoseconds, or 0 if the
// thread's scheduling policy is not SCHED_OTHER or the system has no time slices per thread (Linux before 6.12).
uint64_t AskForShortSlices();

}  // namespace xlad::collectives
