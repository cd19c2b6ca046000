// Matrix products and convolutions on shards.
#include <algorithm>

#include "sharding/partition/op_family.h"

namespace xlad::sharding {

namespace {

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

}  // namespace

absl::Status EmitDot(Emitter& emitter, LocalOp& op) {
  SetResults(emitter, op, emitter.CloneLocal(*op.source, LocalResultShape(op), MaskedOperands(emitter, op)));
  return absl::OkStatus();
}

// Of the reduction factors only the input's features; a spatial dimension that is summed over needs neighbours.
std::vector<bool> SplitConvolution(const hlo::Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThroughAndReduced(instruction, rule);
  const size_t feature = static_cast<size_t>(instruction.attributes().convolution->input_feature);
  const DimensionFactors& features = rule.operands[0][feature];
  for (size_t f = 0; f < result.size(); ++f) {
    const bool is_feature = std::find(features.begin(), features.end(), static_cast<int>(f)) != features.end();
    if (rule.factors[f].kind == FactorKind::kReduction && !is_feature) result[f] = false;
  }
  return result;
}

// Groups that are split leave fewer groups to each device; which factor they are shows in the output's features, of
// which they are the major one.
absl::Status EmitConvolution(Emitter& emitter, LocalOp& op) {
  hlo::Instruction* local = emitter.CloneLocal(*op.source, LocalResultShape(op), MaskedOperands(emitter, op));
  hlo::Attributes& attributes = local->mutable_attributes();
  if (attributes.feature_group_count > 1 || attributes.batch_group_count > 1) {
    const int group = op.rule->results[0][static_cast<size_t>(attributes.convolution->output_feature)][0];
    const int64_t shards = ShardCount((*op.assignment)[static_cast<size_t>(group)].axes);
    if (attributes.feature_group_count > 1) attributes.feature_group_count /= shards;
    if (attributes.batch_group_count > 1) attributes.batch_group_count /= shards;
  }
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
