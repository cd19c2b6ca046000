#include "compiler/passes/drop_dead_elements.h"

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/clone.h"
#include "hlo/build/builder.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

// The carried elements that are live: those that are read after the loop, in the condition, or in the body for another
// live element or a side effect. This is a backward liveness analysis, repeated up to the fixed point.
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

}  // namespace

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

}  // namespace xlad::compiler
