// The limit on the memory that a step may need on each device.
#pragma once

#include "compiler/buffers/rematerialize.h"

namespace xlad::compiler {

// The ResourceExhausted error of a program that does not fit into `limit` bytes. `usual` is the program without
// repeated operations. `least` is the one that needs the fewest bytes with at most kMaxGrowth times as many operations.
// The error states the bytes of parameters, results, constants and temporaries. It names the operation at which the
// most bytes of temporaries are live, its line in the user's code, and the largest values at that time. If `least`
// needs fewer bytes, its bytes, its largest values and the cost of its repeated operations follow.
absl::Status MemoryLimitError(const PlannedProgram& usual, const PlannedProgram& least, int64_t limit);

}  // namespace xlad::compiler
