// Memory for every value of a Program.
//
// First values that may be one buffer are made one (copies that thereby vanish, operations in place, results in
// donated parameters), as long as no two of them are needed at the same time; then what is left gets its place:
// parameters, results and constants their own allocations, everything else an offset in one arena.
#pragma once

#include "compiler/buffers/liveness.h"
#include "compiler/buffers/program.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

struct Assignment {
  std::vector<BufferSlice> slices;      // By value.
  std::vector<Allocation> allocations;  // 0 is the arena; then parameters, results, constants as they are needed.
  int64_t arena_bytes = 0;
  int64_t peak_bytes = 0;  // Most bytes of temporaries live at one point: what no arena can go below.
};

Assignment AssignBuffers(const Program& program);

// An independent check by abstract execution: at every op every operand's slice still holds that operand's value,
// and shared memory is shared only where MayShareMemory allows. Internal error naming op and value where not.
absl::Status CheckAssignment(const Program& program, const Assignment& assignment);

}  // namespace xlad::compiler
