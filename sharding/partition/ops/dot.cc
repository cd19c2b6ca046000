// Matrix products on shards.
#include <algorithm>

#include "sharding/partition/op_family.h"

namespace xlad::sharding {

// Padding along a summed dimension is zeroed on all sides: zero times garbage would be NaN where it is infinite.
std::vector<hlo::Instruction*> MaskedOperands(Emitter& emitter, const LocalOp& op) {
  std::vector<hlo::Instruction*> operands;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const LocalArray& operand = op.operands[i];
    const Dims dims = ReducedDims(op, i);
    const bool padded =
        std::any_of(dims.begin(), dims.end(), [&](int64_t d) { return Emitter::HasPadding(operand, d); });
    operands.push_back(padded ? emitter.MaskPadding(operand, dims, emitter.builder().Scalar(operand.global.type, 0))
                              : operand.local);
  }
  return operands;
}

absl::Status EmitDot(Emitter& emitter, LocalOp& op) {
  SetResults(emitter, op, emitter.CloneLocal(*op.source, LocalResultShape(op), MaskedOperands(emitter, op)));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
