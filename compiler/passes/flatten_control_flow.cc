// Replaces control flow in reducers, comparators and other computations that kernels apply to each element, because
// kernels have none. Branches are inlined and their results selected, and counted loops are unrolled. Results are the
// same, because the instructions of these computations have no side effects.
//
// Needs: inlined calls. Leaves, except in step computations: no conditional; no loop of 0 iterations, and no other
// loop whose trip count is known, unless the computation would have more than 4,096 instructions with the loop
// unrolled. ResourceExhausted if branches expand a computation to more than 65,536 instructions.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/change_loops.h"
#include "compiler/passes/fusion_limits.h"
#include "compiler/passes/passes.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxSelectedInstructions = 1 << 16;

Instruction* TupleElement(hlo::Builder& builder, Instruction* tuple, int64_t i) {
  return tuple->opcode() == Opcode::kTuple ? tuple->operand(i) : builder.GetTupleElement(tuple, i);
}

// A select of two arrays or, for tuples, a select for each element.
Instruction* SelectEach(hlo::Builder& builder, Instruction* condition, Instruction* yes, Instruction* no) {
  if (!yes->shape().is_tuple()) return builder.Select(condition, yes, no);
  std::vector<Instruction*> elements;
  for (int64_t i = 0; i < std::ssize(yes->shape().tuple()); ++i) {
    elements.push_back(SelectEach(builder, condition, TupleElement(builder, yes, i), TupleElement(builder, no, i)));
  }
  return builder.Tuple(elements);
}

Instruction* SelectedBranch(const Instruction& conditional) {
  hlo::Builder builder(conditional.parent());
  builder.set_template(&conditional);
  Instruction* selector = conditional.operand(0);
  std::vector<Instruction*> results;
  for (const Computation* branch : conditional.called()) {
    results.push_back(InlineInto(*branch, {conditional.operand(std::ssize(results) + 1)}, conditional.parent()));
  }
  const ElementType type = selector->shape().type();
  if (type == ElementType::kPred) return SelectEach(builder, selector, results[0], results[1]);
  Instruction* chosen = results.back();  // An index that is out of range selects the last branch.
  for (int64_t i = std::ssize(results) - 2; i >= 0; --i) {
    Instruction* is_chosen = builder.Compare(hlo::Comparison::kEq, selector, builder.Scalar(type, i));
    chosen = SelectEach(builder, is_chosen, results[i], chosen);
  }
  return chosen;
}

// Checks the size that the computation would have with the branches of `conditional`. Called before the branches are
// inlined, because many conditionals can call one large branch.
absl::Status CheckSizeWith(const Instruction& conditional, const Computation& computation) {
  int64_t instructions = std::ssize(computation.instructions());
  for (const Computation* branch : conditional.called()) instructions += std::ssize(branch->instructions());
  if (instructions <= kMaxSelectedInstructions) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("computation ", computation.name(),
                                                   ": found conditionals that expand to ", instructions,
                                                   " instructions or more, expected at most ", kMaxSelectedInstructions,
                                                   ", because the computation is applied to each element"));
}

// The result of a loop as copies of its body, or null if the trip count is unknown or the computation would become too
// large. The limit includes the copies of other loops, because inner loops are unrolled in each copy of an outer loop.
Instruction* UnrolledResult(const Instruction& loop) {
  const std::optional<int64_t> iterations = hlo::TripCount(loop);
  // Not negative, because a loop of 0 iterations adds no instructions to a computation that is too large without it.
  const int64_t left = std::max<int64_t>(0, kMaxWithUnrolledLoops - std::ssize(loop.parent()->instructions()));
  if (!iterations.has_value() || *iterations > left / std::ssize(loop.called()[1]->instructions())) return nullptr;
  return UnrolledLoop(loop, *iterations);
}

// The result of a conditional or loop without control flow. Returns null for a loop that remains, and for all other
// instructions.
absl::StatusOr<Instruction*> FlattenedResult(const Instruction& instruction) {
  if (instruction.opcode() == Opcode::kWhile) return UnrolledResult(instruction);
  if (instruction.opcode() != Opcode::kConditional) return nullptr;
  XLAD_RETURN_IF_ERROR(CheckSizeWith(instruction, *instruction.parent()));
  return SelectedBranch(instruction);
}

absl::Status Flatten(Computation* computation) {
  for (bool again = true; again;) {  // Branches and bodies may contain conditionals and loops.
    again = false;
    for (Instruction* at : Snapshot(*computation)) {
      XLAD_ASSIGN_OR_RETURN(Instruction* const result, FlattenedResult(*at));
      if (result == nullptr) continue;
      at->ReplaceAllUsesWith(result);
      computation->Remove(at);
      again = true;
    }
    if (again) FinishEdits(computation);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FlattenControlFlow(hlo::Module& module, PassContext&) {
  const std::vector<Computation*> steps = StepComputations(module);
  const absl::flat_hash_set<const Computation*> is_step(steps.begin(), steps.end());
  for (const auto& computation : module.computations()) {
    if (!is_step.contains(computation.get())) XLAD_RETURN_IF_ERROR(Flatten(computation.get()));
  }
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
