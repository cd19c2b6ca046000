// Evaluates instructions whose operands are constants, if the work is small.
//
// Needs: nothing. Leaves: no pure instruction with at most 4,096 result elements whose operands are all constants of at
// most that size. Broadcasts and iotas are not folded, because fused code computes them from the index without reading
// memory. Convolutions, and all but small dots and reduce-windows, are not folded, because the evaluator is slow.

#include "compiler/analysis/hlo_names.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/replace_instructions.h"
#include "hlo/analysis/constants.h"
#include "hlo/analysis/counts.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxElements = 4096;

bool IsFoldable(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kConstant:
    case Opcode::kParameter:
    case Opcode::kBroadcast:
    case Opcode::kIota:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kOptBarrier:
    case Opcode::kWhile:
    case Opcode::kConditional:
    case Opcode::kCustomCall:
    case Opcode::kFusion:
    case Opcode::kPartitionId:
    case Opcode::kAfterAll:
    case Opcode::kConvolution:
      return false;
    default:
      break;
  }
  if (hlo::IsCollective(instruction.opcode()) || hlo::HasSideEffect(instruction)) return false;
  if (!instruction.shape().is_array() || instruction.shape().elements() > kMaxElements) return false;
  if (instruction.operand_count() == 0) return false;
  for (const Instruction* operand : instruction.operands()) {
    if (hlo::KnownLiteral(*operand) == nullptr || operand->shape().elements() > kMaxElements) return false;
  }
  // The evaluator is slow, so operations that combine many operand elements for each result stay in the program.
  if (instruction.opcode() == Opcode::kDot) return instruction.operand(0)->shape().elements() <= 64;
  return instruction.opcode() != Opcode::kReduceWindow || hlo::WindowElements(instruction) <= 64;
}

}  // namespace

absl::Status FoldConstants(hlo::Module& module, PassContext&) {
  ReplaceInstructions(module, [](Instruction* instruction) -> Instruction* {
    if (!IsFoldable(*instruction)) return nullptr;
    std::vector<const hlo::Literal*> operands;
    for (const Instruction* operand : instruction->operands()) operands.push_back(operand->literal().get());
    auto value = hlo::EvaluateInstruction(*instruction, operands);
    if (!value.ok() || value->is_tuple) return nullptr;  // Not supported by the evaluator.
    hlo::Builder builder(instruction->parent());
    builder.set_template(instruction);
    return builder.Constant(std::move(value->array));
  });
  return absl::OkStatus();
}

}  // namespace xlad::compiler
