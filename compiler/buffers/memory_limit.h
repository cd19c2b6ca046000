// The limit on the memory that a step may need on each device.
#pragma once

#include "compiler/buffers/rematerialize.h"

namespace xlad::compiler {

// The ResourceExhausted error of a program that does not fit into `limit` bytes. `usual` is the program without
// repeated operations, and `least` the one that needs least with at most kMaxGrowth times as many operations. The error
// has the bytes of parameters, results, constants and temporaries, the operation at which the most bytes of temporaries
// are live, with its line in the user's code, and the largest values at that time. If `least` has repeated operations,
// their cost, its bytes and its largest values follow.
absl::Status MemoryLimitError(const PlannedProgram& usual, const PlannedProgram& least, int64_t limit);

}  // namespace xlad::compiler
