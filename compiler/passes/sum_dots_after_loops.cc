// Replaces sums of dots over the iterations of a loop with one dot after the loop. The gradient of the weights of a
// recurrent network is such a sum:
//
//   body:   sum' = sum + dot(x[t], y), and ys[t] = y        // x and ys are arrays with one element for each iteration
//   after:  sum  = initial sum + dot(x, ys)                 // also sums over t
//
// In the loop, each iteration would read and write the whole sum, but add only a few terms to each of its elements. If
// the loop does not store y (or x), it is made to store it.
//
// Needs: simplified loops; canonical dots. Leaves: no carried element of a loop of 2 to 65,536 counted iterations
// (LoopIndices) that is only a sum of dots, if each operand of the dot is a slice of a loop-invariant array or is
// stored in an array by the loop, both at the same index. One of the operands may be in no array if IsWorthStoring is
// true for it and the context does not keep loops small. A sum is not moved if the operands together have more than
// three times as many bytes as the sum. Every carried element of a changed loop is used.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/containers.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/loop_indices.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/change_loops.h"
#include "compiler/passes/drop_dead_elements.h"
#include "compiler/passes/passes.h"
#include "hlo/analysis/constants.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// An array that holds, for each iteration of a loop, the value of an instruction of the body.
struct Stacked {
  int64_t element = -1;          // The loop's tuple element that is the array.
  bool is_computed = false;      // Whether the loop writes the array. Otherwise the array is loop-invariant.
  Instruction* index = nullptr;  // The scalar of the body that is the position in the array.
};

const Instruction* WithoutReshapes(const Instruction* x) {
  while (x->opcode() == Opcode::kReshape) x = x->operand(0);
  return x;
}

// All arrays that hold the value `x` of the body.
std::vector<Stacked> FindStacked(const Instruction& loop, const Instruction* x, LoopIndices* indices) {
  x = WithoutReshapes(x);
  const Computation& body = *loop.called()[1];
  if (x->opcode() == Opcode::kDynamicSlice && AccessesOneRow(*x)) {
    const Instruction* array = x->operand(0);
    if (IsInvariantElement(loop, *array) && indices->VisitsAll(x->operand(1), array->shape().dim(0))) {
      return {{array->number(), false, x->operand(1)}};
    }
  }
  std::vector<Stacked> found;
  for (int64_t i = 0; i < body.root()->operand_count(); ++i) {
    const Instruction* next = body.root()->operand(i);
    if (next->opcode() != Opcode::kDynamicUpdateSlice || WithoutReshapes(next->operand(1)) != x) continue;
    if (indices->StackingUpdate(i) != nullptr) found.push_back({i, true, next->operand(2)});
  }
  return found;
}

// A carried element that is a sum of dots.
struct SumOfDots {
  int64_t element = -1;
  Instruction* add = nullptr;
  Instruction* dot = nullptr;
  std::vector<Stacked> lhs, rhs;  // The arrays that hold the operands.

  // An array for each operand, both with the same index, if there are such arrays.
  std::optional<std::pair<Stacked, Stacked>> Arrays(LoopIndices* indices) const {
    for (const Stacked& left : lhs) {
      for (const Stacked& right : rhs) {
        if (indices->AreEqual(left.index, right.index)) return std::pair(left, right);
      }
    }
    return std::nullopt;
  }
};

// An iteration writes the dot, reads and writes the sum, and reads the operands. After the loop, the operands are read
// again, possibly from slower memory. That is worthwhile unless they are much larger than the sum.
bool IsWorthwhile(const Instruction& dot) {
  return dot.operand(0)->shape().bytes() + dot.operand(1)->shape().bytes() <= 3 * dot.shape().bytes();
}

// Whether a value of the body may differ between iterations.
bool Varies(const Instruction& loop, const Instruction* value) {
  absl::flat_hash_set<const Instruction*> seen = {value};
  std::vector<const Instruction*> left = {value};
  while (!left.empty()) {
    const Instruction* x = left.back();
    left.pop_back();
    if (x->opcode() == Opcode::kParameter) return true;
    if (IsInvariantElement(loop, *x)) continue;
    for (const Instruction* operand : x->operands()) {
      if (seen.insert(operand).second) left.push_back(operand);
    }
  }
  return false;
}

// Whether an operand of the dot is worth storing in each iteration only to move the sum. While the loop runs, the array
// of all its values takes the place of the sum and of the dot's result. A value that is equal in all iterations would
// be stored many times.
bool IsWorthStoring(const Instruction& loop, const Instruction& operand, const Instruction& dot, int64_t trips) {
  return trips * operand.shape().bytes() <= 4 * dot.shape().bytes() && Varies(loop, &operand);
}

std::optional<SumOfDots> MatchSum(const Instruction& loop, int64_t element, LoopIndices* indices) {
  const Computation& body = *loop.called()[1];
  Instruction* add = body.root()->operand(element);
  if (add->opcode() != Opcode::kAdd || add->users().size() != 1 || !add->shape().is_array()) return std::nullopt;
  const auto& results = body.root()->operands();
  if (std::count(results.begin(), results.end(), add) != 1) return std::nullopt;
  const Instruction* sum = FindElement(body, element);
  const Instruction* in_condition = FindElement(*loop.called()[0], element);
  if (sum == nullptr || sum->users().size() != 1) return std::nullopt;
  if (in_condition != nullptr && !in_condition->users().empty()) return std::nullopt;
  const int64_t side = add->operand(0) == sum ? 1 : 0;
  Instruction* dot = add->operand(side);
  if (add->operand(1 - side) != sum || dot->opcode() != Opcode::kDot || dot->operand_count() != 2) return std::nullopt;
  if (dot->users().size() != 1 || !IsWorthwhile(*dot)) return std::nullopt;
  return SumOfDots{element, add, dot, FindStacked(loop, dot->operand(0), indices),
                   FindStacked(loop, dot->operand(1), indices)};
}

// Makes the loop store those operands of sums of dots that it must store so that the sums can be moved. Returns whether
// there are any.
bool StoreOperands(Instruction* loop) {
  LoopIndices indices(*loop);
  if (indices.trips() < 2) return false;
  std::vector<std::pair<Instruction*, Instruction*>> stored;  // Each with its index in the array.
  std::vector<Instruction*> arrays;
  hlo::Builder before(loop->parent());
  for (int64_t i = 0; i < loop->operand(0)->operand_count(); ++i) {
    const std::optional<SumOfDots> sum = MatchSum(*loop, i, &indices);
    if (!sum.has_value() || sum->lhs.empty() == sum->rhs.empty()) continue;
    const Stacked& other = sum->lhs.empty() ? sum->rhs[0] : sum->lhs[0];
    Instruction* operand = sum->dot->operand(sum->lhs.empty() ? 0 : 1);
    if (!IsWorthStoring(*loop, *operand, *sum->dot, indices.trips())) continue;
    const auto is_here = [&](const auto& at) {
      return at.first == operand && indices.AreEqual(at.second, other.index);
    };
    if (std::any_of(stored.begin(), stored.end(), is_here)) continue;
    stored.emplace_back(operand, other.index);
    Dims dims = operand->shape().dims();
    dims.insert(dims.begin(), indices.trips());
    arrays.push_back(before.Zero(Shape(operand->shape().type(), dims)));
  }
  if (stored.empty()) return false;
  const std::vector<Instruction*> now = CarryUnchanged(loop, arrays);
  Computation* body = loop->called()[1];
  hlo::Builder builder(body);
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto& [operand, index] = stored[i];
    builder.set_template(operand);
    Dims row = now[i]->shape().dims();
    row[0] = 1;
    std::vector<Instruction*> starts(row.size(), builder.Scalar(index->shape().type(), 0));
    starts[0] = index;
    Instruction* next = builder.DynamicUpdateSlice(now[i], builder.Reshape(operand, row), starts);
    body->root()->ReplaceOperand(now[i]->number(), next);
  }
  FinishEdits(body);  // Removes the old root, so that MatchSum does not count it as a user.
  return true;
}

Dims Incremented(Dims dimensions) {
  for (int64_t& d : dimensions) ++d;
  return dimensions;
}

// The get-tuple-element of a loop's result with this index. Appends one if there is none.
Instruction* ElementAfter(Instruction* loop, int64_t element, hlo::Builder* builder) {
  for (Instruction* user : loop->users()) {
    if (user->number() == element) return user;
  }
  return builder->GetTupleElement(loop, element);
}

// Appends the dot of whole arrays, and replaces the uses of the sum after the loop.
void MoveAfter(Instruction* loop, const SumOfDots& sum, const Stacked& left, const Stacked& right) {
  hlo::Builder builder(loop->parent());
  builder.set_template(sum.dot);
  const auto whole = [&](const Stacked& stacked, const Instruction* operand) {
    Instruction* array = stacked.is_computed ? ElementAfter(loop, stacked.element, &builder)
                                             : loop->operand(0)->operand(stacked.element);
    Dims dims = operand->shape().dims();
    dims.insert(dims.begin(), array->shape().dim(0));
    return dims == array->shape().dims() ? array : builder.Reshape(array, dims);
  };
  Instruction* lhs = whole(left, sum.dot->operand(0));
  Instruction* rhs = whole(right, sum.dot->operand(1));
  Instruction* dot = CloneWithOperands(*sum.dot, {lhs, rhs}, loop->parent());
  hlo::DotDimensions dims = *sum.dot->attributes().dot;
  for (Dims* list : {&dims.lhs_batch, &dims.rhs_batch, &dims.lhs_contracting, &dims.rhs_contracting}) {
    *list = Incremented(*list);
  }
  dims.lhs_contracting.insert(dims.lhs_contracting.begin(), 0);
  dims.rhs_contracting.insert(dims.rhs_contracting.begin(), 0);
  dot->mutable_attributes().dot = dims;
  Instruction* initial = loop->operand(0)->operand(sum.element);
  Instruction* total = hlo::IsZero(*initial) ? dot : builder.Binary(Opcode::kAdd, initial, dot);
  for (Instruction* user : std::vector<Instruction*>(loop->users().begin(), loop->users().end())) {
    if (user->number() == sum.element) user->ReplaceAllUsesWith(total);
  }
  Computation* body = loop->called()[1];
  body->root()->ReplaceOperand(sum.element, FindElement(*body, sum.element));
}

bool MoveSums(Instruction* loop, PassContext* context) {
  if (!MayChangeElements(*loop)) return false;
  if (!context->keeps_loops_small) context->has_larger_loops |= StoreOperands(loop);
  LoopIndices indices(*loop);
  if (indices.trips() < 2) return false;
  bool changed = false;
  for (int64_t i = 0; i < loop->operand(0)->operand_count(); ++i) {
    const std::optional<SumOfDots> sum = MatchSum(*loop, i, &indices);
    const auto arrays = sum.has_value() ? sum->Arrays(&indices) : std::nullopt;
    if (!arrays.has_value()) continue;
    MoveAfter(loop, *sum, arrays->first, arrays->second);
    changed = true;
  }
  return changed;
}

}  // namespace

absl::Status SumDotsAfterLoops(hlo::Module& module, PassContext& context) {
  for (Computation* computation : StepComputations(module)) {
    std::vector<Instruction*> loops;
    for (Instruction* loop : Snapshot(*computation)) {
      if (loop->opcode() != Opcode::kWhile || !MoveSums(loop, &context)) continue;
      FinishEdits(loop->called()[1]);
      loops.push_back(loop);
    }
    if (loops.empty()) continue;
    FinishEdits(computation);  // Removes the elements of the sums, and loops that computed nothing else.
    for (Instruction* loop : Snapshot(*computation)) {
      if (Contains(loops, loop)) DropDeadElements(loop);
    }
    FinishEdits(computation);
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
