// Reshapes on shards.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sharding/model/axes.h"
#include "sharding/partition/halo.h"
#include "sharding/partition/ops/families.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// The major factor of a dimension, not counting factors of size 1, or -1 if there is none.
int MajorFactor(const OpRule& rule, const DimensionFactors& factors) {
  for (int f : factors) {
    if (rule.factors[f].size > 1) return f;
  }
  return -1;
}

// Whether the assignment uses none of the axes.
bool AreUnused(const Assignment& assignment, const AxisList& axes) {
  return std::none_of(axes.begin(), axes.end(), [&](const AxisRef& axis) { return SplitsFactors(assignment, axis); });
}

}  // namespace

std::vector<RaggedDim> RaggedDims(const Instruction& reshape, const OpRule& rule, const Assignment& assignment,
                                  const TensorSharding& from, const TensorSharding& wanted) {
  std::vector<RaggedDim> ragged;
  const Dims &in = reshape.operand(0)->shape().dims(), &out = reshape.shape().dims();
  for (size_t a = 0; a < in.size(); ++a) {
    const AxisList& axes = from.dims[a].axes;
    const int major = MajorFactor(rule, rule.operands[0][a]);
    if (axes.empty() || major < 0 || !AreUnused(assignment, axes)) continue;
    if (!AxesOf(assignment, rule.operands[0][a]).empty()) continue;
    for (size_t b = 0; b < out.size(); ++b) {
      const bool same = Merged(wanted.dims[b].axes) == Merged(axes) && MajorFactor(rule, rule.results[0][b]) == major;
      if (same && rule.factors[major].size == std::min(in[a], out[b])) ragged.push_back({a, b});
    }
  }
  return ragged;
}

// If the size of a split dimension is not a multiple of the number of shards, the shards of the operand and of the
// result begin at different elements. Elements are then moved between shards before the reshape if the dimension is
// longer in the operand, and otherwise after it.
absl::Status EmitReshape(LocalBuilder& local, LocalOp& op) {
  if (op.ragged.empty()) return EmitSame(local, op);
  LocalArray x = op.operands[0];
  const hlo::Shape wanted = LocalResultShape(op);
  Dims dims = wanted.dims();
  const auto fetch = [&](int64_t dim, int64_t size, int64_t shard, int64_t length) {
    HaloNeed need{size, shard, {}, length, 0, size};
    const int64_t shards = ShardCount(x.sharding.dims[dim].axes);
    for (int64_t k = 0; k < shards; ++k) need.starts.push_back(k * length);
    x.local = FetchHalo(local, {x, dim, nullptr, {op.source, absl::StrCat("size ", size, " of dimension ", dim,
                                                                           " is not a multiple of ", shards)}}, need);
  };
  for (const RaggedDim& ragged : op.ragged) {
    const int64_t in = x.global.dims[ragged.operand], out = op.results[0].global.dims[ragged.result];
    const int64_t shard = x.local->shape().dims()[ragged.operand];
    if (in >= out)
      fetch(ragged.operand, in, shard, dims[ragged.result] * (in / out));
    else dims[ragged.result] = shard * (out / in);
  }
  local.builder().set_template(op.source);
  x.local = local.CloneLocal(*op.source, hlo::Shape(wanted.type(), dims), {x.local});
  x.global = op.results[0].global;
  x.sharding = op.results[0].sharding;
  for (const RaggedDim& ragged : op.ragged) {
    const int64_t out = x.global.dims[ragged.result];
    const int64_t shard = dims[ragged.result], length = wanted.dims()[ragged.result];
    if (shard != length) fetch(ragged.result, out, shard, length);
  }
  op.results[0].local = x.local;
  return absl::OkStatus();
}

}  // namespace xlad::sharding
