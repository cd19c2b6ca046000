#include "hlo/analysis/lapack.h"

#include <vector>

namespace xlad::hlo {

bool IsLapackCall(const Instruction& instruction) {
  return instruction.opcode() == Opcode::kCustomCall &&
         tensor::ParseLapackTarget(instruction.attributes().custom_call_target).has_value();
}

absl::StatusOr<tensor::LapackCall> LapackCallOf(const Instruction& instruction) {
  const std::string& target = instruction.attributes().custom_call_target;
  tensor::LapackCall call = *tensor::ParseLapackTarget(target);
  const auto array = [](const Shape& shape) { return shape.is_array() ? shape.array() : tensor::Shape(); };
  std::vector<tensor::Shape> operands, results;
  for (const Instruction* operand : instruction.operands()) operands.push_back(array(operand->shape()));
  if (instruction.shape().is_tuple()) {
    for (const Shape& element : instruction.shape().tuple()) results.push_back(array(element));
  } else {
    results.push_back(array(instruction.shape()));
  }
  XLAD_RETURN_IF_ERROR(Annotate(CheckLapackShapes(operands, results, &call), target));
  return call;
}

}  // namespace xlad::hlo
