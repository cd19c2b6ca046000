#include "compiler/passes/simplify.h"

#include "compiler/passes/simplify_rules.h"

namespace xlad::compiler {
namespace {

using Rule = Instruction* (*)(Instruction*, hlo::Builder&);
constexpr Rule kRules[] = {SimplifyElementwise, SimplifyShape, SimplifyOther};

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
  if (changed) {
    computation->SortTopologically();
    computation->RemoveDead();
  }
  return changed;
}

}  // namespace

absl::Status Simplify(hlo::Module& module, PassContext&) {
  constexpr int kMostRounds = 20;  // Each round walks in dependency order, so a few are enough for long chains.
  for (Computation* computation : StepComputations(module)) {
    for (int round = 0; round < kMostRounds && SimplifyOnce(computation); ++round) {
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
