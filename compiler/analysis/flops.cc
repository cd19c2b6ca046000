#include "compiler/analysis/flops.h"

#include <algorithm>
#include <cmath>

#include "compiler/analysis/hlo_names.h"
#include "hlo/analysis/counts.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

bool IsNumber(ElementType type) { return tensor::IsFloating(type) || tensor::IsComplex(type); }

double ElementsOf(const Shape& shape) { return static_cast<double>(hlo::ElementsOfLargestLeaf(shape)); }

// Whether an instruction counts as one operation for each element.
bool Computes(const Instruction& instruction) {
  const Opcode opcode = instruction.opcode();
  const bool converts = opcode == Opcode::kConvert || opcode == Opcode::kBitcastConvert;
  return hlo::IsElementwise(opcode) && !converts && instruction.shape().is_array() &&
         IsNumber(instruction.shape().type());
}

// Counts the operations of a computation on scalars.
double OperationsOf(const Computation& computation) {
  return static_cast<double>(std::count_if(computation.instructions().begin(), computation.instructions().end(),
                                           [](const auto& instruction) { return Computes(*instruction); }));
}

}  // namespace

double FlopsOf(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kFusion: {
      double sum = 0;
      for (const auto& inner : instruction.called()[0]->instructions()) sum += FlopsOf(*inner);
      return sum;
    }
    case Opcode::kDot:
      return hlo::DotFlops(instruction);
    case Opcode::kConvolution:
      return hlo::ConvolutionFlops(instruction);
    case Opcode::kFft: {
      const double elements = ElementsOf(instruction.operand(0)->shape());
      double points = 1;
      for (const int64_t length : instruction.attributes().fft_length) points *= static_cast<double>(length);
      return 5 * elements * std::log2(std::max(points, 1.0));
    }
    case Opcode::kReduce:
    case Opcode::kScan:
      return ElementsOf(instruction.operand(0)->shape()) * OperationsOf(*instruction.called()[0]);
    case Opcode::kReduceWindow:
      return ElementsOf(instruction.shape()) * hlo::WindowElements(instruction) *
             OperationsOf(*instruction.called()[0]);
    default:
      break;
  }
  return Computes(instruction) ? ElementsOf(instruction.shape()) : 0;
}

}  // namespace xlad::compiler
