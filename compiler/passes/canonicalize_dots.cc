// Folds transposes into the dimension numbers of dots.
//
// Needs: simplified. Leaves: no dot that reads a transpose, and no transpose that is the only reader of a dot, if a dot
// with other dimension numbers or swapped operands computes the same.
#include "compiler/passes/passes.h"

#include <algorithm>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/score_space.h"
#include "compiler/analysis/step_computations.h"

namespace xlad::compiler {
namespace {

// Replaces an operand of the dot that is a transpose with the operand of the transpose, if the free dimensions stay in
// order.
void FoldTransposedOperand(Instruction* dot, int64_t side) {
  Instruction* transpose = dot->operand(side);
  if (transpose->opcode() != Opcode::kTranspose) return;
  hlo::DotDimensions dims = *dot->attributes().dot;
  Dims& batch = side == 0 ? dims.lhs_batch : dims.rhs_batch;
  Dims& contracting = side == 0 ? dims.lhs_contracting : dims.rhs_contracting;
  const Dims& permutation = transpose->dimensions();
  const FreeDimensions of_dot = FreeDimensionsOf(*dot);
  const Dims free = tensor::Select(permutation, side == 0 ? of_dot.lhs : of_dot.rhs);
  if (!std::is_sorted(free.begin(), free.end())) return;
  batch = tensor::Select(permutation, batch);
  contracting = tensor::Select(permutation, contracting);
  dot->ReplaceOperand(side, transpose->operand(0));
  dot->mutable_attributes().dot = dims;
}

// transpose(dot(a, b)) that swaps all of a's free dimensions with all of b's is dot(b, a).
Instruction* SwapForTranspose(Instruction* transpose) {
  Instruction* dot = transpose->operand(0);
  if (dot->opcode() != Opcode::kDot || dot->users().size() != 1 || dot->operand_count() != 2) return nullptr;
  const hlo::DotDimensions& dims = *dot->attributes().dot;
  const int64_t batch = std::ssize(dims.lhs_batch);
  const int64_t left = dot->operand(0)->shape().ndim() - batch - std::ssize(dims.lhs_contracting);
  const int64_t ndim = dot->shape().ndim();
  Dims wanted;
  for (int64_t d = 0; d < batch; ++d) wanted.push_back(d);
  for (int64_t d = batch + left; d < ndim; ++d) wanted.push_back(d);
  for (int64_t d = batch; d < batch + left; ++d) wanted.push_back(d);
  if (transpose->dimensions() != wanted) return nullptr;
  Instruction* swapped = CloneWithOperands(*dot, {dot->operand(1), dot->operand(0)}, dot->parent());
  swapped->mutable_attributes().dot =
      hlo::DotDimensions{dims.rhs_batch, dims.lhs_batch, dims.rhs_contracting, dims.lhs_contracting};
  std::vector<std::string>& precision = swapped->mutable_attributes().operand_precision;
  std::reverse(precision.begin(), precision.end());
  swapped->mutable_shape() = transpose->shape();
  return swapped;
}

}  // namespace

absl::Status CanonicalizeDots(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    for (Instruction* instruction : Snapshot(*computation)) {
      if (instruction->opcode() != Opcode::kTranspose) continue;
      if (Instruction* swapped = SwapForTranspose(instruction)) instruction->ReplaceAllUsesWith(swapped);
    }
    FinishEdits(computation);
    for (Instruction* instruction : Snapshot(*computation)) {
      if (instruction->opcode() != Opcode::kDot || instruction->operand_count() != 2) continue;
      FoldTransposedOperand(instruction, 0);
      FoldTransposedOperand(instruction, 1);
    }
    computation->RemoveDead();
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
