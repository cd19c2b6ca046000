// Counts the work of algorithms, for tests of how the work grows with the input. Unlike times, the counts do not depend
// on the machine.
//
// Algorithms over whole programs call CountWork in their innermost loops: once for each instruction, value or edge that
// they visit. A test reads the difference of WorkOfThread before and after a call.
#pragma once

#include <cstdint>

namespace xlad {

inline thread_local int64_t work_of_thread = 0;

inline void CountWork(int64_t units = 1) { work_of_thread += units; }
// The units that this thread has counted since it started.
inline int64_t WorkOfThread() { return work_of_thread; }

}  // namespace xlad
