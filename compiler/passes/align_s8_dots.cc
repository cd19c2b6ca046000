// Transposes operands of dots of s8 with a result of s32, so that cuBLASLt can compute them: for matrices in the usual
// order it requires that both operands are contiguous along the sum. An operand that a loop does not change is
// transposed once, before the loop. Constants in a body, and operands that an outer loop does not change either, are
// not moved further.
//
// Needs: canonicalize-dots. Leaves: if the program is for a GPU, the contracting dimensions of these operands are their
// last dimensions, in the same order, unless the library refuses the sizes of the dot, or the dot has one row and its
// right operand would be transposed.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/library_op.h"
#include "compiler/analysis/loop_indices.h"
#include "compiler/analysis/score_space.h"
#include "compiler/passes/change_loops.h"
#include "compiler/passes/drop_dead_elements.h"
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
  Dims batch, free, contracting;
};
using ByteOperands = std::array<ByteOperand, 2>;

bool EndsWithContracting(const ByteOperand& operand) {
  const int64_t first = operand.array->shape().ndim() - std::ssize(operand.contracting);
  for (int64_t i = 0; i < std::ssize(operand.contracting); ++i) {
    if (operand.contracting[i] != first + i) return false;
  }
  return true;
}

// Transposes the operand to [batch, free, contracting], unless its contracting dimensions are its last ones.
void MoveContractingLast(hlo::Builder* builder, ByteOperand* operand) {
  if (EndsWithContracting(*operand)) return;
  Dims order = operand->batch;
  order.insert(order.end(), operand->free.begin(), operand->free.end());
  order.insert(order.end(), operand->contracting.begin(), operand->contracting.end());
  std::iota(operand->batch.begin(), operand->batch.end(), 0);
  std::iota(operand->contracting.begin(), operand->contracting.end(),
            std::ssize(order) - std::ssize(operand->contracting));
  operand->array = builder->Transpose(operand->array, order);
}

// The operands of a dot that the library computes if at least one of them is transposed; nullopt for other dots.
std::optional<ByteOperands> UnalignedOperands(const Instruction& dot) {
  if (!IsGpuLibraryOp(dot) || dot.operand(0)->shape().type() != ElementType::kS8) return std::nullopt;
  const hlo::DotDimensions& dims = *dot.attributes().dot;
  const FreeDimensions free = FreeDimensionsOf(dot);
  const auto count = [&](int64_t side, const Dims& of) {
    return tensor::Product(tensor::Select(dot.operand(side)->shape().dims(), of));
  };
  const int64_t rows = count(0, free.lhs), columns = count(1, free.rhs), depth = count(0, dims.lhs_contracting);
  if (columns % kByteGroup != 0 || depth % kByteGroup != 0 || dot.shape().elements() == 0 || depth == 0)
    return std::nullopt;
  // The pairs of contracting dimensions in the order of lhs.
  Dims pairs(dims.lhs_contracting.size());
  std::iota(pairs.begin(), pairs.end(), 0);
  std::sort(pairs.begin(), pairs.end(),
            [&](int64_t a, int64_t b) { return dims.lhs_contracting[a] < dims.lhs_contracting[b]; });
  ByteOperand lhs{dot.operand(0), dims.lhs_batch, free.lhs, tensor::Select(dims.lhs_contracting, pairs)};
  ByteOperand rhs{dot.operand(1), dims.rhs_batch, free.rhs, tensor::Select(dims.rhs_contracting, pairs)};
  if (EndsWithContracting(lhs) && EndsWithContracting(rhs)) return std::nullopt;
  // If there is one row, each element of rhs is used once, and a copy takes as long as the product.
  if (!EndsWithContracting(rhs) && rows == 1) return std::nullopt;
  return ByteOperands{lhs, rhs};
}

// Appends the dot of these operands, whose pairs of contracting dimensions may have another order.
Instruction* DotOf(const Instruction& dot, const ByteOperands& operands) {
  const auto& [lhs, rhs] = operands;
  Instruction* product = CloneWithOperands(dot, {lhs.array, rhs.array}, dot.parent());
  product->mutable_attributes().dot = hlo::DotDimensions{lhs.batch, rhs.batch, lhs.contracting, rhs.contracting};
  return product;
}

Instruction* Aligned(Instruction* dot) {
  std::optional<ByteOperands> operands = UnalignedOperands(*dot);
  if (!operands.has_value()) return nullptr;
  hlo::Builder builder(dot->parent());
  builder.set_template(dot);
  for (ByteOperand& operand : *operands) MoveContractingLast(&builder, &operand);
  return DotOf(*dot, *operands);
}

// A dot in the body of a loop, and the indices of its operands that are transposed before the loop, or -1.
struct DotInLoop {
  Instruction* dot;
  ByteOperands operands;
  std::array<int64_t, 2> transposed = {-1, -1};
};

// Transposes the operand before the loop. Returns the index of the result in `all`.
int64_t TransposeBefore(const Instruction& loop, ByteOperand* operand, std::vector<Instruction*>* all) {
  operand->array = loop.operand(0)->operand(operand->array->number());
  hlo::Builder builder(loop.parent());
  builder.set_template(operand->array);
  MoveContractingLast(&builder, operand);
  const auto same = std::find_if(all->begin(), all->end(), [&](const Instruction* other) {
    return other->operand(0) == operand->array->operand(0) && other->dimensions() == operand->array->dimensions();
  });
  const int64_t index = same - all->begin();
  if (same == all->end()) all->push_back(operand->array);
  return index;
}

// Transposes the operands of dots in the body that the loop does not change, before the loop.
bool AlignBefore(Instruction* loop) {
  if (!MayChangeElements(*loop)) return false;
  Computation* body = loop->called()[1];
  std::vector<DotInLoop> dots;
  std::vector<Instruction*> transposed;
  for (Instruction* dot : Snapshot(*body)) {
    std::optional<ByteOperands> operands = UnalignedOperands(*dot);
    if (!operands.has_value()) continue;
    DotInLoop found{dot, *std::move(operands)};
    for (int side = 0; side < 2; ++side) {
      ByteOperand& operand = found.operands[side];
      if (EndsWithContracting(operand) || !IsInvariantElement(*loop, *operand.array)) continue;
      found.transposed[side] = TransposeBefore(*loop, &operand, &transposed);
    }
    if (found.transposed != std::array<int64_t, 2>{-1, -1}) dots.push_back(std::move(found));
  }
  if (dots.empty()) return false;
  const std::vector<Instruction*> in_body = CarryUnchanged(loop, transposed);
  for (DotInLoop& found : dots) {
    for (int side = 0; side < 2; ++side) {
      if (found.transposed[side] >= 0) found.operands[side].array = in_body[found.transposed[side]];
    }
    found.dot->ReplaceAllUsesWith(DotOf(*found.dot, found.operands));
  }
  FinishEdits(body);
  DropDeadElements(loop);
  return true;
}

}  // namespace

absl::Status AlignS8Dots(hlo::Module& module, PassContext& context) {
  if (!context.uses_cublaslt) return absl::OkStatus();
  ChangeLoops(module, AlignBefore);
  ReplaceInstructions(module, Aligned);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
