// select-and-scatter on shards: every device does all windows that touch its part of the operand, with what they cover
// of neighbours, and keeps its own part of the sums.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/build/builder.h"
#include "sharding/partition/op_family.h"
#include "sharding/partition/ops/window_halo.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

struct SplitDim {
  int64_t dim = 0;
  HaloNeed operand, source;
  Dims own;  // By shard: where its part begins in what it fetched of the operand.
};

SplitDim PlanDim(int64_t dim, int64_t size, int64_t windows, const hlo::WindowDimension& window, int64_t shards) {
  const int64_t shard = ShardSize(size, shards), low = window.padding_low, stride = window.stride;
  SplitDim split{dim, {size, shard, {}, 0, 0, size}, {windows, ShardSize(windows, shards), {}, 0, 0, windows}, {}};
  for (int64_t k = 0; k < shards; ++k) {
    const int64_t begin = k * shard, end = begin + shard;
    // All that touch the shard, and on both sides as many that what they cover together holds the shard.
    const int64_t first = std::min(CeilDivide(begin - window.size + 1 + low, stride), FloorDivide(begin + low, stride));
    const int64_t last = std::max(FloorDivide(end - 1 + low, stride), CeilDivide(end - window.size + low, stride));
    split.source.starts.push_back(first);
    split.source.length = std::max(split.source.length, last - first + 1);
    split.operand.starts.push_back(first * stride - low);
    split.own.push_back(begin - split.operand.starts.back());
  }
  split.operand.length = (split.source.length - 1) * stride + window.size;
  return split;
}

std::vector<SplitDim> SplitDims(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  const Dims& dims = instruction.operand(0)->shape().dims();
  std::vector<SplitDim> split;
  for (size_t d = 0; d < dims.size(); ++d) {
    const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
    const int64_t shards = ShardCount(AxesOf(assignment, rule.operands[0][d]));
    if (shards == 1 || window == hlo::WindowDimension{}) continue;
    const int64_t windows = instruction.operand(1)->shape().dims()[d];
    split.push_back(PlanDim(static_cast<int64_t>(d), dims[d], windows, window, shards));
  }
  return split;
}

// Which identity never stands against a real element: that of max where the larger one is selected.
std::optional<hlo::Opcode> Selected(const Instruction& instruction) {
  const Instruction& root = *instruction.called()[0]->root();
  if (root.opcode() != hlo::Opcode::kCompare) return std::nullopt;
  const Instruction &a = *root.operand(0), &b = *root.operand(1);
  const bool direct = a.opcode() == hlo::Opcode::kParameter && b.opcode() == hlo::Opcode::kParameter &&
                      a.number() == 0 && b.number() == 1;
  if (!direct || !HasIdentity(hlo::Opcode::kMaximum, a.shape().type())) return std::nullopt;
  switch (root.attributes().comparison) {
    case hlo::Comparison::kGe:
    case hlo::Comparison::kGt: return hlo::Opcode::kMaximum;
    case hlo::Comparison::kLe:
    case hlo::Comparison::kLt: return hlo::Opcode::kMinimum;
    default: return std::nullopt;
  }
}

}  // namespace

std::vector<bool> SplitSelectAndScatter(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const std::optional<hlo::Opcode> scatter = hlo::ReducerOpcode(*instruction.called()[1]);
  const bool sums = scatter && HasIdentity(*scatter, instruction.shape().type());
  for (size_t d = 0; d < rule.results[0].size(); ++d) {
    const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
    const bool inside = window.padding_low == 0 && window.padding_high == 0;
    const bool plain = window.base_dilation == 1 && window.window_dilation == 1;
    const bool any = instruction.operand(0)->shape().elements() > 0 && instruction.operand(1)->shape().elements() > 0;
    for (int f : rule.results[0][d]) {
      const bool halo = any && sums && plain && (inside || Selected(instruction).has_value());
      result[f] = window == hlo::WindowDimension{} ? result[f] : halo;
    }
  }
  return result;
}

Halos SelectAndScatterHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  Halos halos;
  for (SplitDim& split : SplitDims(instruction, rule, assignment)) {
    halos.push_back({0, split.dim, std::move(split.operand)});
    halos.push_back({1, split.dim, std::move(split.source)});
  }
  return halos;
}

absl::Status EmitSelectAndScatter(Emitter& emitter, LocalOp& op) {
  const std::vector<SplitDim> splits = SplitDims(*op.source, *op.rule, *op.assignment);
  if (splits.empty()) return EmitSame(emitter, op);
  hlo::Window window = *op.source->attributes().window;
  LocalArray operand = op.operands[0], source = op.operands[1];
  const std::optional<hlo::Opcode> selected = Selected(*op.source);
  Instruction* outside = selected ? IdentityOf(emitter, *selected, operand.global.type) : nullptr;
  Instruction* nothing =
      IdentityOf(emitter, *hlo::ReducerOpcode(*op.source->called()[1]), source.global.type);
  for (const SplitDim& split : splits) {
    hlo::WindowDimension& local = window[split.dim];
    const std::string what = absl::StrCat("windows over dimension ", split.dim, " (size ", local.size, ", stride ",
                                          local.stride, ") reach into other shards");
    operand.local = FetchHalo(emitter, {operand, split.dim, outside, {op.source, what}}, split.operand);
    source.local = FetchHalo(emitter, {source, split.dim, nothing, {op.source, what}}, split.source);
    local.padding_low = local.padding_high = 0;
  }
  emitter.builder().set_template(op.source);
  Instruction* local = emitter.CloneLocal(*op.source, operand.local->shape(),
                                          {operand.local, source.local, op.operands[2].local});
  local->mutable_attributes().window = std::move(window);
  for (const SplitDim& split : splits) {
    const Along along{split.dim, operand.sharding.dims[split.dim].axes};
    local = SliceByPosition(emitter, local, along, split.own, split.operand.shard);
  }
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
