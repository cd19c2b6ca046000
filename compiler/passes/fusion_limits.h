// The limits of fusions and of the computations in them, for passes and for the code of kernels.
#pragma once

#include <cstdint>

namespace xlad::compiler {

// The time of LLVM's optimization grows with the instructions in a fusion.
inline constexpr int64_t kMaxFusedInstructions = 600;
inline constexpr int64_t kMaxFusionResults = 12;
// The instructions of a computation that is applied to each element, with its loops unrolled.
inline constexpr int64_t kMaxWithUnrolledLoops = 1 << 12;
// The search for a path between two instructions stops after this many instructions and then assumes that there is a
// path.
inline constexpr int kMaxPathVisits = 4000;

}  // namespace xlad::compiler
