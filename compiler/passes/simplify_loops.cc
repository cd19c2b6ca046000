// Simplifies while loops: sinks constants, drops unused carried elements, and unrolls short loops.
//
// Needs: every while has computations of its own (inline-calls); simplified. Leaves: loop-carried constants are
// constants in the body; every carried element is used; loops of at most 8 iterations are unrolled if this makes at
// most kMaxUnrolledInstructions instructions and the body has no control flow, collectives or other instructions that
// are not fused (MayUnroll). The copies of the body can then be fused (for example, the five rounds of threefry).
#include "compiler/passes/passes.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/build/builder.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

// The limits of unrolling: iterations of the loop, and instructions of the result.
constexpr int64_t kMaxUnrolledIterations = 8;
constexpr int64_t kMaxUnrolledInstructions = 600;

// The get-tuple-element of the computation's parameter with this index, or null.
Instruction* FindElement(Computation* computation, int64_t index) {
  for (Instruction* user : computation->parameter(0)->users()) {
    if (user->opcode() == Opcode::kGetTupleElement && user->number() == index) return user;
  }
  return nullptr;
}

// Whether the initial state and the next state are tuples, and the state is read only by get-tuple-elements.
bool HasTupleForm(const Instruction& loop) {
  if (!loop.shape().is_tuple() || loop.operand(0)->opcode() != Opcode::kTuple) return false;
  if (loop.called()[1]->root()->opcode() != Opcode::kTuple) return false;
  for (const Computation* computation : loop.called()) {
    for (const Instruction* user : computation->parameter(0)->users()) {
      if (user->opcode() != Opcode::kGetTupleElement) return false;
    }
    if (computation->parameter(0) == computation->root()) return false;
  }
  return true;
}

// Whether the body returns carried element `index` unchanged.
bool IsInvariant(const Instruction& loop, int64_t index) {
  const Instruction* next = loop.called()[1]->root()->operand(index);
  return next->opcode() == Opcode::kGetTupleElement && next->number() == index &&
         next->operand(0) == loop.called()[1]->parameter(0);
}

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
      Instruction* get = FindElement(computation, i);
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

// The carried elements that are live: those that are read after the loop, in the condition, or in the body for another
// live element. This is a backward liveness analysis, repeated up to the fixed point.
std::vector<bool> LiveElements(const Instruction& loop) {
  const int64_t count = loop.operand(0)->operand_count();
  std::vector<bool> read(count, false);
  for (const Instruction* user : loop.users()) {
    if (user->opcode() != Opcode::kGetTupleElement) return std::vector<bool>(count, true);
    read[user->number()] = true;
  }
  if (loop.parent()->root() == &loop) return std::vector<bool>(count, true);
  for (const Instruction* user : loop.called()[0]->parameter(0)->users()) {
    if (!user->users().empty() || user == loop.called()[0]->root()) read[user->number()] = true;
  }
  const Computation& body = *loop.called()[1];
  absl::flat_hash_map<const Instruction*, bool> needed;
  for (bool changed = true; changed;) {
    changed = false;
    needed.clear();
    for (int64_t i = 0; i < count; ++i) {
      if (read[i]) needed[body.root()->operand(i)] = true;
    }
    const auto& all = body.instructions();
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      const Instruction* at = it->get();
      if (at == body.root()) continue;
      if (!needed[at] && !hlo::HasSideEffect(*at)) continue;
      if (at->opcode() == Opcode::kGetTupleElement && at->operand(0) == body.parameter(0)) {
        if (!read[at->number()]) changed = true;
        read[at->number()] = true;
      }
      for (const Instruction* operand : at->operands()) needed[operand] = true;
    }
  }
  return read;
}

// Reduces the tuple parameter of a condition or body, and the tuple root of a body, to the kept elements. For a dropped
// element, new_index is -1.
void Narrow(Computation* computation, const std::vector<int64_t>& new_index, const Shape& shape, bool is_body) {
  Instruction* parameter = computation->parameter(0);
  parameter->mutable_shape() = shape;
  if (is_body) {
    std::vector<Instruction*> kept;
    Instruction* root = computation->root();
    for (size_t i = 0; i < new_index.size(); ++i) {
      if (new_index[i] >= 0) kept.push_back(root->operand(i));
    }
    hlo::Builder builder(computation);
    builder.set_template(root);
    computation->set_root(builder.Tuple(kept));
  }
  computation->RemoveDead();
  for (Instruction* get : parameter->users()) get->set_number(new_index[get->number()]);
}

// Replaces the loop by a loop without the dead carried elements.
void DropDeadElements(Instruction* loop) {
  const std::vector<bool> live = LiveElements(*loop);
  std::vector<int64_t> new_index;
  std::vector<Instruction*> kept;
  std::vector<Shape> shapes;
  for (size_t i = 0; i < live.size(); ++i) {
    new_index.push_back(live[i] ? std::ssize(kept) : -1);
    if (!live[i]) continue;
    kept.push_back(loop->operand(0)->operand(i));
    shapes.push_back(kept.back()->shape());
  }
  if (kept.size() == live.size()) return;
  const Shape shape = Shape::Tuple(shapes);
  Narrow(loop->called()[0], new_index, shape, false);
  Narrow(loop->called()[1], new_index, shape, true);
  hlo::Builder builder(loop->parent());
  builder.set_template(loop);
  Instruction* smaller = CloneWithOperands(*loop, {builder.Tuple(kept)}, loop->parent());
  smaller->mutable_shape() = shape;
  for (Instruction* get : std::vector<Instruction*>(loop->users().begin(), loop->users().end())) {
    get->ReplaceAllUsesWith(builder.GetTupleElement(smaller, new_index[get->number()]));
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
  Instruction* state = loop->operand(0);
  for (int64_t i = 0; i < *iterations; ++i) state = InlineInto(body, {state}, loop->parent());
  loop->ReplaceAllUsesWith(state);
  return true;
}

}  // namespace

absl::Status SimplifyLoops(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    bool changed = false;
    for (Instruction* loop : Snapshot(*computation)) {
      if (loop->opcode() != Opcode::kWhile || !HasTupleForm(*loop)) continue;
      changed = true;
      if (Unroll(loop)) continue;
      SinkConstants(loop);
      DropDeadElements(loop);
    }
    if (changed) FinishEdits(computation);
  }
  module.RemoveUnusedComputations();
  return absl::OkStatus();
}

}  // namespace xlad::compiler
