// Algebraic simplification: rules that replace an instruction with a cheaper one that has the same value.
//
// Needs: no layouts. Leaves: no instruction to which a rule of simplify_rules.h applies, unless a computation takes
// more than 20 rounds.
#include "compiler/passes/passes.h"

#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/simplify_rules.h"

namespace xlad::compiler {
namespace {

using Rule = Instruction* (*)(Instruction*, hlo::Builder&);
constexpr Rule kRules[] = {SimplifyElementwise, SimplifyShape, SimplifyReductions, SimplifyControlFlow};

bool SimplifyOnce(Computation* computation) {
  bool changed = false;
  for (Instruction* instruction : Snapshot(*computation)) {
    if (instruction->users().empty() && instruction != computation->root()) continue;
    for (Rule rule : kRules) {
      hlo::Builder builder(computation);
      builder.set_template(instruction);
      Instruction* better = rule(instruction, builder);
      if (better == nullptr || better == instruction) continue;
      instruction->ReplaceAllUsesWith(better);
      changed = true;
      break;
    }
  }
  if (changed) FinishEdits(computation);
  return changed;
}

}  // namespace

absl::Status Simplify(hlo::Module& module, PassContext&) {
  constexpr int kMaxRounds = 20;  // A round visits operands before users, so long chains take few rounds.
  for (Computation* computation : StepComputations(module)) {
    for (int round = 0; round < kMaxRounds && SimplifyOnce(computation); ++round) {
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
