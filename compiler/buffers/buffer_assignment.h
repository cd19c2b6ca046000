// Buffer assignment: memory for every value of a LinearProgram.
//
// There are two steps. Coalescing (coalesce.h) merges values that can share a buffer: the operand and result of an
// operation in place, and the source and destination of a copy. A result that is aliased with a donated parameter is
// copied to this parameter. Then every merged class is placed. Parameters, results and constants get allocations of
// their own. Temporaries get offsets in one arena: the largest class first, each in the smallest sufficient gap between
// classes that are live at the same time. This is "greedy by size" of Pisarchyk and Lee, Efficient Memory Management
// for Deep Neural Net Inference.
#pragma once

#include "compiler/buffers/linear_program.h"
#include "compiler/buffers/liveness.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

struct BufferAssignment {
  std::vector<BufferSlice> slices;  // The memory of each value.
  // Allocation 0 is the arena. After it come parameters, results and constants, in this order.
  std::vector<Allocation> allocations;
  int64_t arena_bytes = 0;
  // The maximum over all points of the bytes of live temporaries: a lower bound on arena_bytes.
  int64_t peak_bytes = 0;
};

BufferAssignment AssignBuffers(const LinearProgram& program);

// Checks an assignment independently of how it was made, by abstract interpretation of the program over the contents of
// memory. A value's slice must have its size and be inside its allocation. Whenever an operation reads a value, the
// memory of this value must still hold it. An operation may overwrite one of its operands only if may_share allows it,
// and never a read-only value. Until a collective ends, no operation may write its operands or access its results.
// Returns an Internal error that names the operation or the value if one of these rules is broken.
absl::Status CheckAssignment(const LinearProgram& program, const BufferAssignment& assignment);

}  // namespace xlad::compiler
