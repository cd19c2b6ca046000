// Simplifies while loops: sinks constants, drops unused carried elements, and unrolls short loops.
//
// Needs: every while has computations of its own (inline-calls); simplified. Leaves, for loops in the tuple form
// (HasTupleForm): loop-carried constants are constants in the body; every carried element is used; short loops are
// unrolled. A short loop has at most 8 iterations and makes at most kMaxUnrolledInstructions instructions. Its body has
// no control flow, collectives, side effects, barriers, dots, convolutions, sorts or scatters (MayUnroll). The copies
// of the body can then be fused (for example, the five rounds of threefry).
#include "compiler/passes/passes.h"

#include <algorithm>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/loop_indices.h"
#include "compiler/passes/change_loops.h"
#include "compiler/passes/drop_dead_elements.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/build/builder.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

// The limits of unrolling: iterations of the loop, and instructions of the result.
constexpr int64_t kMaxUnrolledIterations = 8;
constexpr int64_t kMaxUnrolledInstructions = 600;

// Replaces invariant carried elements. Uses after the loop read the initial value. If the initial value is a constant,
// uses in the loop read a copy of it.
void SinkConstants(Instruction* loop) {
  Instruction* init = loop->operand(0);
  for (int64_t i = 0; i < init->operand_count(); ++i) {
    Instruction* value = init->operand(i);
    if (!IsInvariant(*loop, i)) continue;
    for (Instruction* user : std::vector<Instruction*>(loop->users().begin(), loop->users().end())) {
      if (user->opcode() == Opcode::kGetTupleElement && user->number() == i) user->ReplaceAllUsesWith(value);
    }
    if (value->opcode() != Opcode::kConstant) continue;
    for (Computation* computation : loop->called()) {
      Instruction* get = FindElement(*computation, i);
      if (get == nullptr) continue;
      Instruction* copy = CloneWithOperands(*value, {}, computation);
      // The body's root still returns the element. DropDeadElements removes it.
      for (Instruction* user : std::vector<Instruction*>(get->users().begin(), get->users().end())) {
        if (user == computation->root()) continue;
        for (int64_t k = 0; k < user->operand_count(); ++k) {
          if (user->operand(k) == get) user->ReplaceOperand(k, copy);
        }
      }
      computation->SortTopologically();
    }
  }
}

bool MayUnroll(const Computation& body, int64_t iterations) {
  if (iterations * std::ssize(body.instructions()) > kMaxUnrolledInstructions) return false;
  for (const auto& instruction : body.instructions()) {
    switch (instruction->opcode()) {
      case Opcode::kWhile:
      case Opcode::kConditional:
      case Opcode::kDot:
      case Opcode::kConvolution:
      case Opcode::kSort:
      case Opcode::kScatter:
      case Opcode::kOptBarrier:
        return false;
      default:
        if (hlo::IsCollective(instruction->opcode()) || hlo::HasSideEffect(*instruction)) return false;
    }
  }
  return true;
}

bool Unroll(Instruction* loop) {
  const std::optional<int64_t> iterations = TripCount(*loop);
  const Computation& body = *loop->called()[1];
  if (!iterations.has_value() || *iterations > kMaxUnrolledIterations || !MayUnroll(body, *iterations)) return false;
  loop->ReplaceAllUsesWith(UnrolledLoop(*loop, *iterations));
  return true;
}

}  // namespace

absl::Status SimplifyLoops(hlo::Module& module, PassContext&) {
  ChangeLoops(module, [](Instruction* loop) {
    if (!HasTupleForm(*loop)) return false;
    if (Unroll(loop)) return true;
    SinkConstants(loop);
    DropDeadElements(loop);
    return true;
  });
  module.RemoveUnusedComputations();
  return absl::OkStatus();
}

}  // namespace xlad::compiler
