// Convolutions on shards.
//
// A forward convolution and the convolution for the gradient of the input (which has a base dilation) split output and
// input along a spatial dimension. Every device fetches the part of its windows that its neighbors hold. In the
// convolution for the gradient of the kernel, the "kernel" is as long as the input, and both are split. Every device
// sums over its part of the kernel, which makes a partial result.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sharding/partition/ops/families.h"
#include "sharding/partition/ops/window_halo.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// A spatial dimension that is split.
struct SplitSpatial {
  size_t spatial = 0;
  int64_t input_dim = 0;
  int64_t kernel_shard = 0;  // The number of kernel elements on a device if the kernel is split, otherwise 0.
  WindowNeed need;
};

hlo::WindowDimension WindowOf(const Instruction& instruction, size_t spatial) {
  return instruction.attributes().window ? (*instruction.attributes().window)[spatial] : hlo::WindowDimension{};
}

// For each shard of a split kernel, the first input position with which the shard is multiplied. A reversed window
// applies its elements in the opposite order.
Dims KernelStarts(const hlo::WindowDimension& window, int64_t shard, int64_t shards) {
  Dims starts;
  for (int64_t k = 0; k < shards; ++k) {
    const int64_t element = window.window_reversal ? window.size - (k + 1) * shard : k * shard;
    starts.push_back(element * window.window_dilation - window.padding_low);
  }
  return starts;
}

std::vector<SplitSpatial> SplitSpatials(const Instruction& instruction, const OpRule& rule,
                                        const Assignment& assignment) {
  const hlo::ConvolutionDimensions& dims = *instruction.attributes().convolution;
  std::vector<SplitSpatial> result;
  for (size_t s = 0; s < dims.input_spatial.size(); ++s) {
    const size_t input = dims.input_spatial[s];
    const int64_t shards = ShardCount(AxesOf(assignment, rule.operands[0][input]));
    if (shards == 1) continue;
    const hlo::WindowDimension window = WindowOf(instruction, s);
    const int64_t size = instruction.operand(0)->shape().dims()[input];
    const int64_t outputs = instruction.shape().dims()[dims.output_spatial[s]];
    const bool summed =
        rule.factors[rule.operands[0][input].back()].kind == FactorKind::kReduction;
    SplitSpatial split{s, dims.input_spatial[s], summed ? ShardSize(window.size, shards) : 0, {}};
    hlo::WindowDimension local = window;
    if (summed) local.size = split.kernel_shard;
    const int64_t windows = summed ? outputs : ShardSize(outputs, shards);
    const Dims starts =
        summed ? KernelStarts(window, split.kernel_shard, shards) : WindowStarts(window, windows, shards);
    split.need =
        NeedOf(size, ShardSize(size, shards), starts, WindowSpan(local, windows), window.base_dilation);
    result.push_back(std::move(split));
  }
  return result;
}

// Divides the group counts by the number of shards of the group factor, which is the major factor of the output's
// features.
void DivideGroups(const LocalOp& op, hlo::Attributes* attributes) {
  if (attributes->feature_group_count == 1 && attributes->batch_group_count == 1) return;
  const int group = op.rule->results[0][attributes->convolution->output_feature][0];
  const int64_t shards = ShardCount((*op.assignment)[group].axes);
  for (int64_t* groups : {&attributes->feature_group_count, &attributes->batch_group_count}) {
    *groups = ShardSize(*groups, shards);
  }
}

}  // namespace

std::vector<bool> SplitConvolution(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThroughAndReduced(instruction, rule);
  if (instruction.shape().elements() == 0) return result;
  for (int64_t d : instruction.attributes().convolution->output_spatial) {
    for (int f : rule.results[0][d]) {
      result[f] = rule.factors[f].kind != FactorKind::kNeedReplication;
    }
  }
  return result;
}

Halos ConvolutionHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  Halos halos;
  for (SplitSpatial& split : SplitSpatials(instruction, rule, assignment)) {
    halos.push_back({0, split.input_dim, std::move(split.need.need)});
  }
  return halos;
}

absl::Status EmitConvolution(LocalBuilder& local, LocalOp& op) {
  const hlo::ConvolutionDimensions& dims = *op.source->attributes().convolution;
  std::vector<Instruction*> operands = MaskedOperands(local, op);
  hlo::Window window;
  for (size_t s = 0; s < dims.input_spatial.size(); ++s) window.push_back(WindowOf(*op.source, s));
  // The halo exchange fills positions outside of the input. The padding of features is masked here.
  LocalArray input = op.operands[0];
  Instruction* zero = local.builder().Scalar(input.global.type, 0);
  if (!ReducedDims(op, 0).empty()) input.local = local.MaskPadding(input, {dims.input_feature}, zero);
  for (const SplitSpatial& split : SplitSpatials(*op.source, *op.rule, *op.assignment)) {
    hlo::WindowDimension& dimension = window[split.spatial];
    const std::string what =
        absl::StrCat(split.kernel_shard > 0 ? "sums over" : "windows over", " dimension ", split.input_dim,
                     " of operand 0 (size ", dimension.size, ", stride ", dimension.stride, ", dilation ",
                     dimension.base_dilation, " and ", dimension.window_dilation, ") reach into other shards");
    input.local = FetchWindow(local, {input, split.input_dim, zero, {op.source, what}}, split.need, &dimension);
    if (split.kernel_shard > 0) dimension.size = split.kernel_shard;
  }
  operands[0] = input.local;
  local.builder().set_template(op.source);
  Instruction* result = local.CloneLocal(*op.source, LocalResultShape(op), operands);
  if (!window.empty()) result->mutable_attributes().window = std::move(window);
  DivideGroups(op, &result->mutable_attributes());
  SetResults(local, op, result);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
