// Records, as a frontend attribute, which initial values of a loop are not read. These are the initial values of arrays
// that the loop overwrites completely, at one index of the first dimension per iteration, as in the results of
// jax.lax.scan. Such a value needs no memory and is not copied before the loop.
//
// Needs: simplified loops; no fusions, because a fusion hides the induction variable. Leaves: the attribute
// kUnreadInitsKey on exactly the whiles that have such elements.
#include <algorithm>

#include "compiler/analysis/loop_indices.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/passes.h"
#include "hlo/attribute_keys.h"

namespace xlad::compiler {
namespace {

// Whether the loop only writes the element: it has one dynamic-update-slice per iteration, and all of them together
// overwrite the whole array.
bool IsOnlyWritten(const Instruction& loop, int64_t element, LoopIndices* indices) {
  const Instruction* update = indices->StackingUpdate(element);
  if (update == nullptr || update->users().size() != 1) return false;
  const auto& results = loop.called()[1]->root()->operands();
  if (std::count(results.begin(), results.end(), update) != 1) return false;
  const Instruction* array = update->operand(0);
  const auto& operands = update->operands();
  if (array->users().size() != 1 || std::count(operands.begin(), operands.end(), array) != 1) return false;
  const auto& in_condition = loop.called()[0]->parameter(0)->users();
  return std::none_of(in_condition.begin(), in_condition.end(),
                      [&](const Instruction* user) { return user->number() == element; });
}

std::vector<int64_t> UnreadInits(const Instruction& loop) {
  if (!HasTupleForm(loop)) return {};
  LoopIndices indices(loop);
  if (indices.trips() == 0) return {};
  std::vector<int64_t> unread;
  for (int64_t i = 0; i < loop.operand(0)->operand_count(); ++i) {
    if (IsOnlyWritten(loop, i, &indices)) unread.push_back(i);
  }
  return unread;
}

}  // namespace

absl::Status NoteUnreadInits(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() != Opcode::kWhile) continue;
      hlo::NoteUnreadInits(instruction.get(), UnreadInits(*instruction));
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
