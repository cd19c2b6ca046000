// Buffer assignment: memory for every value of a LinearProgram.
//
// Two steps. Coalescing (coalesce.h) merges values that can have one buffer: the two sides of a copy, the operand and
// result of an operation in place, a result and the donated parameter that it is aliased with. Then every merged class
// is placed: parameters, results and constants get allocations of their own; temporaries get offsets in one arena, by
// greedy best fit in order of size (largest first; each into the smallest gap between classes that are live at the same
// time), known as "greedy by size" from Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference.
#pragma once

#include "compiler/buffers/linear_program.h"
#include "compiler/buffers/liveness.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

struct BufferAssignment {
  std::vector<BufferSlice> slices;      // The memory of each value.
  std::vector<Allocation> allocations;  // 0 is the arena; then parameters, results and constants, in this order.
  int64_t arena_bytes = 0;
  int64_t peak_bytes = 0;  // The most bytes of temporaries that are live at one point: a lower bound of arena_bytes.
};

BufferAssignment AssignBuffers(const LinearProgram& program);

// Checks an assignment independently of how it was made, by abstract interpretation of the program over the contents of
// memory: whenever an operation reads a value, the value's slice still holds it; and an operation writes over one of
// its operands only if may_share allows it. Otherwise an Internal error names the operation and the value.
absl::Status CheckAssignment(const LinearProgram& program, const BufferAssignment& assignment);

}  // namespace xlad::compiler
