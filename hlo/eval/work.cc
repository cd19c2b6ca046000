// Estimates of the element operations of an instruction, which limit the time that a hostile program can take.
#include "hlo/analysis/counts.h"
#include "hlo/analysis/leaves.h"
#include "hlo/analysis/transparent.h"
#include "hlo/eval/interpreter.h"

namespace xlad::hlo::eval {

double WorkOf(const Instruction& instruction) {
  if (IsTransparent(instruction)) return 1;
  const double result = ElementsOfArrays(instruction.shape());
  double operands = 0;
  for (const Instruction* operand : instruction.operands()) operands += ElementsOfArrays(operand->shape());
  switch (instruction.opcode()) {
    // A barrier does nothing, and the instructions of called computations are counted when they run.
    case Opcode::kWhile:
    case Opcode::kCall:
    case Opcode::kConditional:
    case Opcode::kOptBarrier:
      return 1;
    case Opcode::kDynamicSlice:
    case Opcode::kSlice:
      return result;
    case Opcode::kDot:
    case Opcode::kScaledDot:
      return result * ContractedElements(instruction) + operands;
    case Opcode::kRaggedDot:
      return ElementsOfArrays(instruction.operand(2)->shape()) * (result * ContractedElements(instruction) + operands);
    case Opcode::kConvolution: {
      const auto& dims = instruction.attributes().convolution;
      const int64_t features = instruction.operand(1)->shape().dim(dims->kernel_input_feature);
      return result * WindowElements(instruction) * features + operands;
    }
    case Opcode::kReduceWindow:
      return result * WindowElements(instruction) + operands;
    case Opcode::kSelectAndScatter:
      return ElementsOfArrays(instruction.operand(1)->shape()) * WindowElements(instruction) + operands;
    case Opcode::kFft: {
      double length = 1;
      for (const int64_t size : instruction.attributes().fft_length) length += size;
      return (result + operands) * length;
    }
    case Opcode::kCholesky:
    case Opcode::kTriangularSolve:
      return (result + operands) * instruction.operand(0)->shape().dims().back();
    case Opcode::kCustomCall: {
      const bool matrices = !instruction.operands().empty() && instruction.operand(0)->shape().is_array() &&
                            !instruction.operand(0)->shape().is_scalar();
      if (!matrices) return result + operands;
      return (result + operands) * 10 * instruction.operand(0)->shape().dims().back();
    }
    case Opcode::kSort:
    case Opcode::kTopk:
      return operands * 64;  // A line of n elements needs up to n log2(n) comparisons, and log2(n) < 64.
    default:
      return result + operands;
  }
}

}  // namespace xlad::hlo::eval
