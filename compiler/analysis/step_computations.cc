#include "compiler/analysis/step_computations.h"

#include "absl/container/flat_hash_set.h"

namespace xlad::compiler {
namespace {

void AddPostOrder(Computation* computation, absl::flat_hash_set<Computation*>* seen, std::vector<Computation*>* order) {
  if (!seen->insert(computation).second) return;
  for (const auto& instruction : computation->instructions()) {
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (Computation* callee : instruction->called()) AddPostOrder(callee, seen, order);
  }
  order->push_back(computation);
}

}  // namespace

std::vector<Computation*> StepComputations(const Module& module) {
  absl::flat_hash_set<Computation*> seen;
  std::vector<Computation*> order;
  AddPostOrder(module.entry(), &seen, &order);
  return order;
}

}  // namespace xlad::compiler
