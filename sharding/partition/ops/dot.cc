// Matrix products on shards.
#include <algorithm>

#include "sharding/partition/ops/families.h"

namespace xlad::sharding {

// The padding is zeroed in every operand: zero times an infinite value of another operand's padding would be NaN.
std::vector<hlo::Instruction*> MaskedOperands(LocalBuilder& local, const LocalOp& op) {
  std::vector<hlo::Instruction*> operands;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const LocalArray& operand = op.operands[i];
    const Dims dims = ReducedDims(op, i);
    const bool padded =
        std::any_of(dims.begin(), dims.end(), [&](int64_t d) { return LocalBuilder::HasPadding(operand, d); });
    operands.push_back(padded ? local.MaskPadding(operand, dims, local.builder().Scalar(operand.global.type, 0))
                              : operand.local);
  }
  return operands;
}

absl::Status EmitDot(LocalBuilder& local, LocalOp& op) {
  SetResults(local, op, local.CloneLocal(*op.source, LocalResultShape(op), MaskedOperands(local, op)));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
