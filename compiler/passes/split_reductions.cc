// Divides a reduction of a large array to one value into two reductions: of each block to one value, and of these
// values. Blocks can be computed on several cores. Their number depends only on the shape.
//
// Needs: simplified. Leaves: no sum, product, maximum or minimum of f32 or f64 of kMinElements or more elements to one
// value, unless its sizes have no suitable divisors. Later passes must not join the two reductions.
#include <limits>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/plain_reducer.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/passes.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMinElements = 1 << 16;
constexpr int64_t kMinBlocks = 8, kMaxBlocks = 256;

// The number of blocks. It is the product of the leading sizes and a divisor of the next size, so that a block is a
// range of the leading indices.
int64_t BlocksOf(const Dims& sizes) {
  int64_t blocks = 1;
  for (const int64_t size : sizes) {
    int64_t divisor = std::min(size, kMaxBlocks / blocks);
    while (size % divisor != 0) --divisor;
    blocks *= divisor;
    if (divisor != size) break;
  }
  return blocks;
}

double NeutralOf(Opcode reducer) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (reducer) {
    case Opcode::kMultiply:
      return 1;
    case Opcode::kMaximum:
      return -kInfinity;
    case Opcode::kMinimum:
      return kInfinity;
    default:
      return -0.0;
  }
}

Instruction* Split(Instruction* reduce) {
  if (reduce->opcode() != Opcode::kReduce || reduce->operand_count() != 2) return nullptr;
  Computation* reducer = reduce->called()[0];
  Instruction* x = reduce->operand(0);
  if (reduce->shape().elements() != 1 || x->shape().elements() < kMinElements || !IsReorderableFloat(*reducer)) {
    return nullptr;
  }
  const int64_t blocks = BlocksOf(x->shape().dims());
  if (blocks < kMinBlocks) return nullptr;
  hlo::Builder builder(reduce->parent());
  builder.set_template(reduce);
  Instruction* rows = builder.Reshape(x, {blocks, x->shape().elements() / blocks});
  Instruction* neutral = builder.Scalar(x->shape().type(), NeutralOf(*PlainReducer(*reducer)));
  Instruction* partial = builder.Reduce(rows, neutral, {1}, reducer);
  Instruction* total = builder.Reduce(partial, reduce->operand(1), {0}, reducer);
  return reduce->shape().is_scalar() ? total : builder.Reshape(total, reduce->shape().dims());
}

}  // namespace

absl::Status SplitReductions(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    for (Instruction* instruction : Snapshot(*computation)) {
      if (Instruction* split = Split(instruction)) instruction->ReplaceAllUsesWith(split);
    }
    FinishEdits(computation);
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
