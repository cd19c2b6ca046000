// The limit on the memory that a step may need on each device.
#pragma once

#include "compiler/buffers/buffer_assignment.h"

namespace xlad::compiler {

// ResourceExhausted if the allocations need more than `limit` bytes. A limit of 0 means that there is no limit. The
// error has the bytes of parameters, results, constants and temporaries, the operation at which the most bytes of
// temporaries are live, with its line in the user's code, and the largest values at that time.
absl::Status CheckMemoryLimit(const LinearProgram& program, const BufferAssignment& assignment, int64_t limit);

}  // namespace xlad::compiler
