// Estimates of the element operations of an instruction, which limit the time that a hostile program can take.
#include <algorithm>

#include "hlo/analysis/transparent.h"
#include "hlo/eval/interpreter.h"

namespace xlad::hlo::eval {
namespace {

double Elements(const Shape& shape) {
  if (shape.is_array()) return shape.elements();
  double sum = 0;
  for (const Shape& element : shape.tuple()) sum += Elements(element);
  return sum;
}

double WindowElements(const Instruction& instruction) {
  double product = 1;
  if (!instruction.attributes().window.has_value()) return product;
  for (const WindowDimension& dimension : *instruction.attributes().window) {
    product *= dimension.size;
  }
  return product;
}

double ContractedElements(const Instruction& instruction) {
  double product = 1;
  if (!instruction.attributes().dot.has_value()) return product;
  for (const int64_t d : instruction.attributes().dot->lhs_contracting) {
    product *= instruction.operand(0)->shape().dim(d);
  }
  return product;
}

}  // namespace

double WorkOf(const Instruction& instruction) {
  if (IsTransparent(instruction)) return 1;
  const double result = Elements(instruction.shape());
  double operands = 0;
  for (const Instruction* operand : instruction.operands()) operands += Elements(operand->shape());
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
      return Elements(instruction.operand(2)->shape()) * (result * ContractedElements(instruction) + operands);
    case Opcode::kConvolution: {
      const auto& dims = instruction.attributes().convolution;
      const int64_t features = instruction.operand(1)->shape().dim(dims->kernel_input_feature);
      return result * WindowElements(instruction) * features + operands;
    }
    case Opcode::kReduceWindow:
      return result * WindowElements(instruction) + operands;
    case Opcode::kSelectAndScatter:
      return Elements(instruction.operand(1)->shape()) * WindowElements(instruction) + operands;
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
