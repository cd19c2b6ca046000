// Transposes operands of dots of s8 with a result of s32, so that cuBLASLt can compute them: for matrices in the usual
// order it requires that both operands are contiguous along the sum.
//
// Needs: canonicalize-dots. Leaves: if the program is for a GPU, the contracting dimensions of these operands are their
// last dimensions, in the same order, unless the library refuses the sizes of the dot, or the dot has one row and its
// right operand would be transposed.
#include <algorithm>
#include <numeric>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/library_op.h"
#include "compiler/analysis/score_space.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/replace_instructions.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// The library requires that the length of the sum and the number of columns of the result are multiples of this.
constexpr int64_t kByteGroup = 4;

// An operand of a dot with its dimension numbers.
struct ByteOperand {
  Instruction* array;
  Dims batch, contracting;
};

bool EndsWithContracting(const ByteOperand& operand) {
  const int64_t first = operand.array->shape().ndim() - std::ssize(operand.contracting);
  for (int64_t i = 0; i < std::ssize(operand.contracting); ++i) {
    if (operand.contracting[i] != first + i) return false;
  }
  return true;
}

// Transposes the operand to [batch, free, contracting], unless its contracting dimensions are its last ones.
void MoveContractingLast(const Dims& free, hlo::Builder* builder, ByteOperand* operand) {
  if (EndsWithContracting(*operand)) return;
  Dims order = operand->batch;
  order.insert(order.end(), free.begin(), free.end());
  order.insert(order.end(), operand->contracting.begin(), operand->contracting.end());
  std::iota(operand->batch.begin(), operand->batch.end(), 0);
  std::iota(operand->contracting.begin(), operand->contracting.end(),
            std::ssize(order) - std::ssize(operand->contracting));
  operand->array = builder->Transpose(operand->array, order);
}

Instruction* Aligned(Instruction* dot) {
  if (!IsGpuLibraryOp(*dot) || dot->operand(0)->shape().type() != ElementType::kS8) return nullptr;
  const hlo::DotDimensions& dims = *dot->attributes().dot;
  const FreeDimensions free = FreeDimensionsOf(*dot);
  const auto count = [&](int64_t side, const Dims& of) {
    return tensor::Product(tensor::Select(dot->operand(side)->shape().dims(), of));
  };
  const int64_t rows = count(0, free.lhs), columns = count(1, free.rhs), depth = count(0, dims.lhs_contracting);
  if (columns % kByteGroup != 0 || depth % kByteGroup != 0 || dot->shape().elements() == 0 || depth == 0)
    return nullptr;
  // The pairs of contracting dimensions in the order of lhs.
  Dims pairs(dims.lhs_contracting.size());
  std::iota(pairs.begin(), pairs.end(), 0);
  std::sort(pairs.begin(), pairs.end(),
            [&](int64_t a, int64_t b) { return dims.lhs_contracting[a] < dims.lhs_contracting[b]; });
  ByteOperand lhs{dot->operand(0), dims.lhs_batch, tensor::Select(dims.lhs_contracting, pairs)};
  ByteOperand rhs{dot->operand(1), dims.rhs_batch, tensor::Select(dims.rhs_contracting, pairs)};
  if (EndsWithContracting(lhs) && EndsWithContracting(rhs)) return nullptr;
  // If there is one row, each element of rhs is used once, and a copy takes as long as the product.
  if (!EndsWithContracting(rhs) && rows == 1) return nullptr;
  hlo::Builder builder(dot->parent());
  builder.set_template(dot);
  MoveContractingLast(free.lhs, &builder, &lhs);
  MoveContractingLast(free.rhs, &builder, &rhs);
  Instruction* aligned = CloneWithOperands(*dot, {lhs.array, rhs.array}, dot->parent());
  aligned->mutable_attributes().dot = hlo::DotDimensions{lhs.batch, rhs.batch, lhs.contracting, rhs.contracting};
  return aligned;
}

}  // namespace

absl::Status AlignS8Dots(hlo::Module& module, PassContext& context) {
  if (context.uses_cublaslt) ReplaceInstructions(module, Aligned);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
