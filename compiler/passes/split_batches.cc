#include "compiler/passes/split_batches.h"

#include <algorithm>

#include "compiler/analysis/clone.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMinSplit = 1 << 14;

// If `split` is `merged` with its first dimension split into several dimensions, returns the sizes of these dimensions.
// Otherwise returns an empty list.
Dims SplitOf(const Dims& merged, const Dims& split) {
  if (split.size() <= merged.size() || merged.empty()) return {};
  const size_t extra = split.size() - merged.size();
  if (!std::equal(merged.begin() + 1, merged.end(), split.begin() + extra + 1)) return {};
  return Dims(split.begin(), split.begin() + extra + 1);
}

bool HasOneBatchDimension(const Instruction& dot) {
  return dot.opcode() == Opcode::kDot && dot.operand_count() == 2 && dot.attributes().dot->lhs_batch.size() == 1;
}

// The sizes and the dimension numbers of an operand of a dot after dimension `at` has been split into `sizes`.
struct Side {
  Dims sizes, batch, contracting;
};
Side SplitSide(const Shape& shape, int64_t at, const Dims& contracting, const Dims& sizes) {
  Side side;
  side.sizes.assign(shape.dims().begin(), shape.dims().begin() + at);
  side.sizes.insert(side.sizes.end(), sizes.begin(), sizes.end());
  side.sizes.insert(side.sizes.end(), shape.dims().begin() + at + 1, shape.dims().end());
  const int64_t count = std::ssize(sizes);
  for (int64_t i = 0; i < count; ++i) side.batch.push_back(at + i);
  for (const int64_t d : contracting) side.contracting.push_back(d > at ? d + count - 1 : d);
  return side;
}

// The dot with its batch dimension split into `sizes`.
Instruction* SplitDot(Instruction* dot, const Dims& sizes) {
  const hlo::DotDimensions& dims = *dot->attributes().dot;
  const Side lhs = SplitSide(dot->operand(0)->shape(), dims.lhs_batch[0], dims.lhs_contracting, sizes);
  const Side rhs = SplitSide(dot->operand(1)->shape(), dims.rhs_batch[0], dims.rhs_contracting, sizes);
  hlo::Builder builder(dot->parent());
  builder.set_template(dot);
  const auto reshaped = [&](Instruction* operand, const Dims& to) {
    const bool undone = operand->opcode() == Opcode::kReshape && operand->operand(0)->shape().dims() == to;
    return undone ? operand->operand(0) : builder.Reshape(operand, to);
  };
  Instruction* operands[] = {reshaped(dot->operand(0), lhs.sizes), reshaped(dot->operand(1), rhs.sizes)};
  Instruction* split = CloneWithOperands(*dot, operands, dot->parent());
  split->mutable_attributes().dot = hlo::DotDimensions{lhs.batch, rhs.batch, lhs.contracting, rhs.contracting};
  Dims result = sizes;
  result.insert(result.end(), dot->shape().dims().begin() + 1, dot->shape().dims().end());
  split->mutable_shape() = Shape(dot->shape().type(), result);
  return split;
}

// Whether the value is computed elementwise from an exponential, like the scores of a softmax and their gradients.
bool HasExponential(const Instruction* value) {
  constexpr size_t kMaxVisits = 64;
  absl::flat_hash_set<const Instruction*> seen = {value};
  std::vector<const Instruction*> pending = {value};
  while (!pending.empty() && seen.size() < kMaxVisits) {
    const Instruction* at = pending.back();
    pending.pop_back();
    if (at->opcode() == Opcode::kExponential) return true;
    if (!hlo::IsElementwise(at->opcode())) continue;
    for (const Instruction* operand : at->operands()) {
      if (operand->shape().is_array() && operand->shape().ndim() > 1 && seen.insert(operand).second) {
        pending.push_back(operand);
      }
    }
  }
  return false;
}

// If an operand of the dot is a reshape of scores that merges several dimensions into the batch dimension, returns the
// sizes of these dimensions. Otherwise returns an empty list.
Dims SplitOfOperands(const Instruction& dot) {
  for (int64_t k = 0; k < 2; ++k) {
    const Instruction* operand = dot.operand(k);
    const Dims& batch = k == 0 ? dot.attributes().dot->lhs_batch : dot.attributes().dot->rhs_batch;
    if (operand->opcode() != Opcode::kReshape || batch[0] != 0 || operand->shape().elements() < kMinSplit) continue;
    const Dims sizes = SplitOf(operand->shape().dims(), operand->operand(0)->shape().dims());
    if (!sizes.empty() && HasExponential(operand->operand(0))) return sizes;
  }
  return {};
}

}  // namespace

void SplitBatches(Computation* computation) {
  for (Instruction* at : Snapshot(*computation)) {
    if (!HasOneBatchDimension(*at)) continue;
    const Dims sizes = SplitOfOperands(*at);
    if (sizes.empty()) continue;
    Instruction* split = SplitDot(at, sizes);
    at->ReplaceAllUsesWith(hlo::Builder(computation).Reshape(split, at->shape().dims()));
  }
  FinishEdits(computation);
  for (Instruction* at : Snapshot(*computation)) {
    if (at->opcode() != Opcode::kReshape || at->shape().elements() < kMinSplit) continue;
    Instruction* dot = at->operand(0);
    if (!HasOneBatchDimension(*dot) || dot->users().size() != 1) continue;
    const Dims sizes = SplitOf(dot->shape().dims(), at->shape().dims());
    if (!sizes.empty()) at->ReplaceAllUsesWith(SplitDot(dot, sizes));
  }
  FinishEdits(computation);
}

}  // namespace xlad::compiler
