// Windowed reductions on shards: every device fetches the part of its windows that its neighbors hold. Cumulative
// reductions continue from the totals of the preceding shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hlo/build/builder.h"
#include "sharding/partition/identity.h"
#include "sharding/partition/ops/families.h"
#include "sharding/partition/ops/window_halo.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// The reducer's opcode if it has an identity, otherwise nullopt. Windows may reach into padding only if there is an
// identity.
std::optional<hlo::Opcode> WindowReduction(const Instruction& instruction) {
  if (!instruction.shape().is_array()) return std::nullopt;
  return ReducerWithIdentity(*instruction.called()[0], instruction.operand(0)->shape().type());
}

// Whether the op is a cumulative reduction along dimension d, that is, every window contains either all elements up to
// its position or all elements from its position on.
bool IsCumulative(const Instruction& instruction, size_t d) {
  const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
  const int64_t size = instruction.operand(0)->shape().dims()[d];
  const bool plain = window.stride == 1 && window.base_dilation == 1 && window.window_dilation == 1;
  const bool all = window.size == size && window.padding_low + window.padding_high == size - 1 &&
                   (window.padding_low == 0 || window.padding_high == 0);
  return plain && all && size > 1 && WindowReduction(instruction).has_value();
}

struct WindowedDim {
  int64_t dim = 0;
  WindowNeed need;
};

// The split dimensions that have windows and along which the op is not cumulative.
std::vector<WindowedDim> WindowedDims(const Instruction& instruction, const OpRule& rule,
                                      const Assignment& assignment) {
  const Dims& dims = instruction.operand(0)->shape().dims();
  const hlo::Shape& result = instruction.shape().is_array() ? instruction.shape() : instruction.shape().tuple()[0];
  std::vector<WindowedDim> split;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
    const int64_t shards = ShardCount(AxesOf(assignment, rule.operands[0][d]));
    if (shards == 1 || window == hlo::WindowDimension{} || IsCumulative(instruction, d)) continue;
    const int64_t windows = ShardSize(result.dims()[d], shards);
    split.push_back({d, NeedOf(dims[d], ShardSize(dims[d], shards), WindowStarts(window, windows, shards),
                               WindowSpan(window, windows), window.base_dilation)});
  }
  return split;
}

// The split dimensions along which the op is cumulative.
std::vector<SplitDim> CumulativeDims(const LocalOp& op) {
  std::vector<SplitDim> dims;
  for (int64_t d = 0; d < std::ssize(op.operands[0].sharding.dims); ++d) {
    const AxisList& axes = op.operands[0].sharding.dims[d].axes;
    if (!axes.empty() && IsCumulative(*op.source, d)) dims.push_back({d, axes});
  }
  return dims;
}

// Combines `x`, the cumulative results of a shard, with the totals of the preceding shards (or of the following ones,
// if the reduction runs backward).
Instruction* CombineWithTotals(LocalBuilder& local, const LocalOp& op, const SplitDim& along, Instruction* x) {
  hlo::Builder& builder = local.builder();
  const size_t d = along.dim;
  const hlo::Opcode reducer = *WindowReduction(*op.source);
  const bool forward = (*op.source->attributes().window)[d].padding_high == 0;
  Dims begin(x->shape().dims().size(), 0), end = x->shape().dims(), kept;
  begin[d] = forward ? end[d] - 1 : 0;
  end[d] = begin[d] + 1;
  Instruction* totals = local.GatherPieces(op.operands[0], builder.Slice(x, begin, end), along.dim, along.axes,
                                            {op.source, absl::StrCat("the cumulative result over dimension ", d,
                                                                     " continues from those of other shards")});
  builder.set_template(op.source);
  const hlo::Shape& all = totals->shape();
  const hlo::Shape index(tensor::ElementType::kS32, {all.dims()[d]});
  Instruction* mask = builder.Compare(forward ? hlo::Comparison::kLt : hlo::Comparison::kGt, builder.Iota(index, 0),
                                      builder.Full(index, local.Position(along.axes)));
  Instruction* identity = IdentityOf(local.builder(), reducer, x->shape().type());
  totals = builder.Select(builder.Broadcast(mask, all.dims(), {along.dim}), totals, builder.Full(all, identity));
  hlo::Computation* combine = hlo::ScalarReducer(local.context().module(), reducer, x->shape().type());
  Instruction* before = builder.Reduce(totals, identity, {along.dim}, combine);
  for (int64_t i = 0; i < x->shape().ndim(); ++i) {
    if (i != along.dim) kept.push_back(i);
  }
  before = builder.Broadcast(before, x->shape().dims(), kept);
  return forward ? builder.Binary(reducer, before, x) : builder.Binary(reducer, x, before);
}

// The value of padding: the initial value if it is a neutral start, otherwise the identity.
Instruction* NeutralValue(LocalBuilder& local, const LocalOp& op, hlo::Opcode reducer) {
  Instruction* init = op.operands[1].local;
  return IsNeutralStart(*init, reducer) ? init : IdentityOf(local.builder(), reducer, op.operands[0].global.type);
}

// Whether windows contain no padding or holes.
bool IsDense(const hlo::WindowDimension& window) {
  return window.padding_low <= 0 && window.padding_high <= 0 && window.base_dilation == 1;
}

}  // namespace

std::vector<bool> SplitReduceWindow(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const Dims& dims = instruction.operand(0)->shape().dims();
  const bool known = WindowReduction(instruction).has_value();
  const bool empty =
      instruction.operand(0)->shape().elements() == 0 || LeafShapes(instruction.shape())[0].elements() == 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    for (int f : rule.results[0][d]) {
      result[f] = !empty && (known || IsDense((*instruction.attributes().window)[d]));
    }
  }
  return result;
}

Halos ReduceWindowHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  Halos halos;
  for (const WindowedDim& split : WindowedDims(instruction, rule, assignment)) {
    for (size_t i = 0; std::cmp_less(i, instruction.operand_count() / 2); ++i) {
      halos.push_back({i, split.dim, split.need.need});
    }
  }
  return halos;
}

absl::Status EmitReduceWindow(LocalBuilder& local, LocalOp& op) {
  hlo::Window window = *op.source->attributes().window;
  const std::optional<hlo::Opcode> reducer = WindowReduction(*op.source);
  std::vector<LocalArray> arrays = op.operands;
  for (const WindowedDim& split : WindowedDims(*op.source, *op.rule, *op.assignment)) {
    const hlo::WindowDimension source = window[split.dim];  // FetchWindow changes the window to that of a shard.
    const std::string what = absl::StrCat("windows over dimension ", split.dim, " (size ", source.size, ", stride ",
                                          source.stride, ") reach into other shards");
    for (size_t i = 0; i < arrays.size() / 2; ++i) {
      Instruction* fill = reducer ? NeutralValue(local, op, *reducer) : nullptr;
      arrays[i].local = FetchWindow(local, {arrays[i], split.dim, fill, {op.source, what}}, split.need,
                                    &window[split.dim]);
    }
  }
  const std::vector<SplitDim> cumulative = CumulativeDims(op);
  for (const SplitDim& along : cumulative) {
    hlo::WindowDimension& dimension = window[along.dim];
    dimension.size = arrays[0].local->shape().dims()[along.dim];
    (dimension.padding_high == 0 ? dimension.padding_low : dimension.padding_high) = dimension.size - 1;
    arrays[0].local = local.MaskPadding(arrays[0], {along.dim}, NeutralValue(local, op, *reducer));
  }
  Instruction* init = nullptr;  // The initial value if it must not be combined on every shard; otherwise null.
  if (!cumulative.empty() && !IsNeutralStart(*arrays[1].local, *reducer)) {
    init = std::exchange(arrays[1].local, IdentityOf(local.builder(), *reducer, op.operands[0].global.type));
  }
  hlo::Builder& builder = local.builder();
  builder.set_template(op.source);
  Instruction* result = local.CloneLocal(*op.source, LocalResultShape(op), Locals(arrays));
  result->mutable_attributes().window = std::move(window);
  for (const SplitDim& along : cumulative) result = CombineWithTotals(local, op, along, result);
  if (init != nullptr) result = builder.Binary(*reducer, builder.Broadcast(init, result->shape().dims(), {}), result);
  SetResults(local, op, result);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
