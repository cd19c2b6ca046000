#include "hlo/analysis/counts.h"

#include <algorithm>

namespace xlad::hlo {

double ContractedElements(const Instruction& instruction) {
  double product = 1;
  if (!instruction.attributes().dot.has_value()) return product;
  for (const int64_t d : instruction.attributes().dot->lhs_contracting) {
    product *= static_cast<double>(instruction.operand(0)->shape().dim(d));
  }
  return product;
}

double WindowElements(const Instruction& instruction) {
  double product = 1;
  if (!instruction.attributes().window.has_value()) return product;
  for (const WindowDimension& d : *instruction.attributes().window) product *= static_cast<double>(d.size);
  return product;
}

double DotFlops(const Instruction& dot) {
  return 2 * static_cast<double>(dot.shape().elements()) * ContractedElements(dot);
}

double ConvolutionFlops(const Instruction& convolution) {
  // Each element of the result is a sum over the elements of the kernel that belong to one output feature.
  const Shape& kernel = convolution.operand(1)->shape();
  const int64_t features = kernel.dim(convolution.attributes().convolution->kernel_output_feature);
  return 2 * static_cast<double>(convolution.shape().elements()) * static_cast<double>(kernel.elements()) /
         std::max<double>(1, static_cast<double>(features));
}

}  // namespace xlad::hlo
