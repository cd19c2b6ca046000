// The order in which instructions run.
//
// Needs: fused step computations. Leaves: every step computation in an order in which
//   - collectives come as soon as their operands are there,
//   - what overwrites a donated parameter or a loop's carried value comes after the other readers of the old value,
//     where data allows,
//   - memory is low: a list schedule that prefers what frees most, or the order of the program, whichever peaks lower.
// Also notes the trip counts of loops.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status OrderInstructions(hlo::Module& module, PassContext& context);

// Notes every loop's trip count as a frontend attribute (compiler/analysis/trip_count.h). Before fusion.
absl::Status NoteTripCounts(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
