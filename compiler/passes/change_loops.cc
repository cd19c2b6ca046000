#include "compiler/passes/change_loops.h"

#include <algorithm>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/loop_indices.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {

bool ChangeLoops(Module& module, absl::FunctionRef<bool(Instruction*)> change) {
  bool any_changed = false;
  for (Computation* computation : StepComputations(module)) {
    bool changed = false;
    for (Instruction* loop : Snapshot(*computation)) {
      if (loop->opcode() == Opcode::kWhile && change(loop)) changed = true;
    }
    if (changed) FinishEdits(computation);
    any_changed |= changed;
  }
  return any_changed;
}

Instruction* UnrolledLoop(const Instruction& loop, int64_t iterations) {
  Instruction* state = loop.operand(0);
  for (int64_t i = 0; i < iterations; ++i) state = InlineInto(*loop.called()[1], {state}, loop.parent());
  return state;
}

bool MayChangeElements(const Instruction& loop) {
  if (!HasTupleForm(loop) || loop.parent()->root() == &loop) return false;
  return std::all_of(loop.users().begin(), loop.users().end(),
                     [](const Instruction* user) { return user->opcode() == Opcode::kGetTupleElement; });
}

std::vector<Instruction*> CarryUnchanged(Instruction* loop, absl::Span<Instruction* const> values) {
  Instruction* init = loop->operand(0);
  std::vector<Instruction*> elements(init->operands().begin(), init->operands().end());
  elements.insert(elements.end(), values.begin(), values.end());
  hlo::Builder builder(loop->parent());
  builder.set_template(init);
  Instruction* tuple = builder.Tuple(elements);
  loop->ReplaceOperand(0, tuple);
  loop->mutable_shape() = tuple->shape();
  for (Computation* computation : loop->called()) computation->parameter(0)->mutable_shape() = tuple->shape();
  Computation* body = loop->called()[1];
  Instruction* root = body->root();
  hlo::Builder in_body(body);
  std::vector<Instruction*> results(root->operands().begin(), root->operands().end()), gets;
  for (int64_t i = std::ssize(results); i < std::ssize(elements); ++i) {
    in_body.set_template(elements[i]);
    gets.push_back(in_body.GetTupleElement(body->parameter(0), i));
  }
  results.insert(results.end(), gets.begin(), gets.end());
  in_body.set_template(root);
  body->set_root(in_body.Tuple(results));
  return gets;
}

}  // namespace xlad::compiler
