// Time slices of threads that mostly wait for messages.
#pragma once

#include <cstdint>

namespace xlad::collectives {

// Asks the system for the shortest time slices for the calling thread. It then runs soon after a message has woken it,
// even if other threads compute on all cores; with the usual slices it would wait for about 3 ms. It also runs sooner
// after a yield. It gets no larger share of the cores. Returns the slice in nanoseconds; 0 if the thread has a policy
// of real time, or if the system has no slices of threads (before Linux 6.12).
uint64_t AskForShortSlices();

}  // namespace xlad::collectives
