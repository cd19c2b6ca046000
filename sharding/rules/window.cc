// Op rules of sliding windows: reduce-window, select-and-scatter, convolution.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

int64_t At(const Dims& dims, int64_t d) { return dims[d]; }

bool IsTrivial(const hlo::WindowDimension& w) { return w == hlo::WindowDimension{}; }

// A window over most of the dimension (a cumulative sum) leaves nothing to compute with neighbours alone.
FactorKind OverlapKind(const hlo::WindowDimension& w, int64_t size) {
  return (w.size - 1) * w.window_dilation + 1 > size / 2 + 1 ? FactorKind::kNeedReplication : FactorKind::kPermutation;
}

}  // namespace

// reduce-window(arrays..., initial values...).
OpRule ReduceWindowRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t arrays = rule.operand_count() / 2;
  for (int64_t d = 0; d < std::ssize(rule.operand_dims(0)); ++d) {
    const hlo::WindowDimension& w = (*instruction.attributes().window)[d];
    const int64_t size = At(rule.operand_dims(0), d), windows = At(rule.result_dims(0), d);
    const int factor =
        rule.Add(std::max(size, windows), IsTrivial(w) ? FactorKind::kPassThrough : OverlapKind(w, size));
    for (int64_t leaf = 0; leaf < arrays; ++leaf) {
      rule.Operand(leaf, d, factor);
      rule.Result(leaf, d, factor);
    }
  }
  return rule.Finish();
}

// (operand, source, initial value) -> operand's shape; source has one element a window.
OpRule SelectAndScatterRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (int64_t d = 0; d < std::ssize(rule.operand_dims(0)); ++d) {
    const hlo::WindowDimension& w = (*instruction.attributes().window)[d];
    const int64_t size = At(rule.operand_dims(0), d);
    const int factor = rule.Add(std::max(size, At(rule.operand_dims(1), d)),
                                IsTrivial(w) ? FactorKind::kPassThrough : OverlapKind(w, size));
    rule.Operand(0, d, factor);
    rule.Operand(1, d, factor);
    rule.Result(0, d, factor);
  }
  return rule.Finish();
}

namespace {

// In a forward convolution the kernel is small and input and output run along together (neighbours exchange
// edges); in the gradient of a kernel the "kernel" is as large as the input and the output is small, and the long
// dimension is summed over.
void SpatialFactors(const hlo::Instruction& instruction, size_t s, RuleBuilder* rule) {
  const hlo::ConvolutionDimensions& dims = *instruction.attributes().convolution;
  const int64_t input = At(rule->operand_dims(0), dims.input_spatial[s]);
  const int64_t kernel = At(rule->operand_dims(1), dims.kernel_spatial[s]);
  const int64_t output = At(rule->result_dims(0), dims.output_spatial[s]);
  const hlo::WindowDimension w =
      instruction.attributes().window ? (*instruction.attributes().window)[s] : hlo::WindowDimension{};
  if (kernel > output) {
    const int factor = rule->Add(std::max(input, kernel), FactorKind::kReduction);
    rule->Operand(0, dims.input_spatial[s], factor);
    rule->Operand(1, dims.kernel_spatial[s], factor);
    return;
  }
  const bool pointwise = kernel == 1 && input == output && w.stride == 1 && w.padding_low == 0 && w.padding_high == 0 &&
                         w.base_dilation == 1;
  const int factor =
      rule->Add(std::max(input, output), pointwise ? FactorKind::kPassThrough : FactorKind::kPermutation);
  rule->Operand(0, dims.input_spatial[s], factor);
  rule->Result(0, dims.output_spatial[s], factor);
}

}  // namespace

// Features may come in groups (feature_group_count splits the input's features, batch_group_count its batch);
// groups are the major part of the output's features.
OpRule ConvolutionRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::ConvolutionDimensions& dims = *instruction.attributes().convolution;
  const int64_t feature_groups = instruction.attributes().feature_group_count;
  const int64_t batch_groups = instruction.attributes().batch_group_count;
  const int64_t groups = std::max(feature_groups, batch_groups);

  if (groups > 1) {
    const int group = rule.Add(groups);
    rule.Operand(0, feature_groups > 1 ? dims.input_feature : dims.input_batch, group);
    rule.Operand(1, dims.kernel_output_feature, group);
    rule.Result(0, dims.output_feature, group);
  }
  const int batch = rule.Add(At(rule.result_dims(0), dims.output_batch));
  rule.Operand(0, dims.input_batch, batch);
  rule.Result(0, dims.output_batch, batch);
  const int output = rule.Add(At(rule.result_dims(0), dims.output_feature) / groups);
  rule.Operand(1, dims.kernel_output_feature, output);
  rule.Result(0, dims.output_feature, output);
  const int input = rule.Add(At(rule.operand_dims(1), dims.kernel_input_feature), FactorKind::kReduction);
  rule.Operand(0, dims.input_feature, input);
  rule.Operand(1, dims.kernel_input_feature, input);
  for (size_t s = 0; s < dims.input_spatial.size(); ++s) SpatialFactors(instruction, s, &rule);
  return rule.Finish();
}

}  // namespace xlad::sharding
