// Rules of sliding windows: reduce-window, select-and-scatter, convolution.
#include <algorithm>

#include "hlo/analysis/window.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// A window that covers more than half of the dimension plus one element, such as that of a cumulative sum, needs the
// data of too many shards, so the dimension must be replicated.
FactorKind KindOf(const hlo::WindowDimension& window, int64_t size) {
  if (window == hlo::WindowDimension{}) return FactorKind::kPassThrough;
  return (window.size - 1) * window.window_dilation + 1 > size / 2 + 1 ? FactorKind::kNeedReplication
                                                                       : FactorKind::kPermutation;
}

// reduce-window(arrays..., initial values...).
OpRule ReduceWindowRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t arrays = rule.operand_count() / 2;
  for (const int64_t d : tensor::Indices(rule.operand_dims(0))) {
    const int64_t size = rule.operand_dims(0)[d], windows = rule.result_dims(0)[d];
    const int factor = rule.Add(std::max(size, windows), KindOf((*instruction.attributes().window)[d], size));
    for (int64_t leaf = 0; leaf < arrays; ++leaf) {
      rule.Operand(leaf, d, factor);
      rule.Result(leaf, d, factor);
    }
  }
  return rule.Finish();
}

// The operands are the array, a source with one element per window, and the initial value.
OpRule SelectAndScatterRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.operand_dims(0))) {
    const int64_t size = rule.operand_dims(0)[d], windows = rule.operand_dims(1)[d];
    const int factor = rule.Add(std::max(size, windows), KindOf((*instruction.attributes().window)[d], size));
    rule.Operand(0, d, factor);
    rule.Operand(1, d, factor);
    rule.Result(0, d, factor);
  }
  return rule.Finish();
}

// In a forward convolution the kernel is small, and input and output have the same positions: neighbors exchange the
// edges of their shards. In the gradient with respect to the kernel, the "kernel" is as large as the input and the
// output is small: the long dimension is summed over.
void AddSpatialFactors(const hlo::Instruction& instruction, int64_t s, RuleBuilder* rule) {
  const hlo::ConvolutionDimensions& dims = *instruction.attributes().convolution;
  const int64_t input = rule->operand_dims(0)[dims.input_spatial[s]];
  const int64_t kernel = rule->operand_dims(1)[dims.kernel_spatial[s]];
  const int64_t output = rule->result_dims(0)[dims.output_spatial[s]];
  const hlo::WindowDimension w =
      instruction.attributes().window ? (*instruction.attributes().window)[s] : hlo::WindowDimension{};
  if (kernel > output) {
    const int factor = rule->Add(std::max(input, kernel), FactorKind::kReduction);
    rule->Operand(0, dims.input_spatial[s], factor);
    rule->Operand(1, dims.kernel_spatial[s], factor);
    return;
  }
  const bool pointwise = kernel == 1 && input == output && hlo::HasNoWindow(w);
  const int factor =
      rule->Add(std::max(input, output), pointwise ? FactorKind::kPassThrough : FactorKind::kPermutation);
  rule->Operand(0, dims.input_spatial[s], factor);
  rule->Result(0, dims.output_spatial[s], factor);
}

// feature_group_count splits the features of the input into groups, and batch_group_count splits its batch. The group
// is the major factor of the output's features.
OpRule ConvolutionRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const hlo::ConvolutionDimensions& dims = *instruction.attributes().convolution;
  const int64_t feature_groups = instruction.attributes().feature_group_count;
  const int64_t groups = std::max(feature_groups, instruction.attributes().batch_group_count);
  if (groups > 1) {
    const int group = rule.Add(groups);
    rule.Operand(0, feature_groups > 1 ? dims.input_feature : dims.input_batch, group);
    rule.Operand(1, dims.kernel_output_feature, group);
    rule.Result(0, dims.output_feature, group);
  }
  const int batch = rule.Add(rule.result_dims(0)[dims.output_batch]);
  rule.Operand(0, dims.input_batch, batch);
  rule.Result(0, dims.output_batch, batch);
  const int output = rule.Add(rule.result_dims(0)[dims.output_feature] / groups);
  rule.Operand(1, dims.kernel_output_feature, output);
  rule.Result(0, dims.output_feature, output);
  const int input = rule.Add(rule.operand_dims(1)[dims.kernel_input_feature], FactorKind::kReduction);
  rule.Operand(0, dims.input_feature, input);
  rule.Operand(1, dims.kernel_input_feature, input);
  for (const int64_t s : tensor::Indices(dims.input_spatial)) AddSpatialFactors(instruction, s, &rule);
  return rule.Finish();
}

constexpr RuleRow kWindowRules[] = {
    {hlo::Opcode::kReduceWindow, ReduceWindowRule},
    {hlo::Opcode::kSelectAndScatter, SelectAndScatterRule},
    {hlo::Opcode::kConvolution, ConvolutionRule},
};

}  // namespace

absl::Span<const RuleRow> WindowRules() { return kWindowRules; }

}  // namespace xlad::sharding
