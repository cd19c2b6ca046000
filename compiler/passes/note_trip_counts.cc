// Records the trip count of every counted loop as a frontend attribute, for the runtime and for later passes.
//
// Needs: simplified loops; no fusions, because a fusion hides the induction variable. Leaves: the attribute
// kTripCountKey on exactly the whiles whose trip count is known.
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/passes.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/attribute_keys.h"

namespace xlad::compiler {

absl::Status NoteTripCounts(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() != Opcode::kWhile) continue;
      hlo::NoteTripCount(instruction.get(), hlo::TripCount(*instruction));
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
