// Rematerialization: computes values again instead of keeping them, so that a program fits into a limit of memory.
//
// The pass works on the operations of a LinearProgram, after fusion, instruction ordering and the overlap of
// collectives. A repeated operation runs the same kernel or library op on the same operands, so results have the same
// bits as without a limit. Collectives, copies, loops, conditionals, custom calls, random numbers, updates in place and
// operations with side effects are not repeated, and the order of the other operations does not change. All devices run
// one program, so they agree.
//
// A round looks at the list of operations (the entry, a loop body or a branch) that holds the most bytes of repeatable
// values at the point of peak memory. In each range of positions that need too much memory, it cuts the list at the
// position that needs most, but makes at most 64 cuts. It tries plans (saved_values.h) with several sizes of segments
// and several limits of cost. The memory of a plan is that of its actual buffer assignment. The cheapest plan that fits
// is chosen, and then the most expensive values are saved again as long as the plan still fits. If no plan fits, the
// next round begins with the plan that needs least.
//
// The number of plans is bounded, and a plan takes time in proportion to the program, so the time is nearly linear. A
// program with more than kMaxGrowth times as many operations as the original is not tried. Without this bound, each
// round could repeat most operations once for each cut if the limit cannot be reached.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/buffers/buffer_assignment.h"

namespace xlad::compiler {

inline constexpr int64_t kMaxGrowth = 4;

// What a program computes again. Flops and bytes in a loop count once for each iteration if the trip count is known. In
// a branch of a conditional, they are divided by the number of branches. Operations count once.
struct RepeatedWork {
  int64_t operations = 0;
  double flops = 0;        // As FlopsOf counts them.
  double usual_flops = 0;  // The flops of operations that are not repeated.
  double bytes = 0;        // Read and written.
};
RepeatedWork RepeatedWorkOf(const LinearProgram& program);
// "12 operations are repeated: 4.1 % more operations on floats, 81920 bytes read and written".
std::string WorkText(const RepeatedWork& work);

// The sum of the sizes of all allocations, in bytes.
int64_t TotalBytes(const BufferAssignment& assignment);

struct PlannedProgram {
  LinearProgram program;
  BufferAssignment assignment;
  bool reached_growth = false;  // Whether a plan that the search tried had too many operations.
};
// Returns the program that fits into `limit` bytes at the least estimated cost that was found or, if none fits, the one
// that needs the fewest bytes. Returns the program itself if it fits or if nothing helps.
PlannedProgram Rematerialize(LinearProgram program, int64_t limit);

}  // namespace xlad::compiler
