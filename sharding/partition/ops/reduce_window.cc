// reduce-window on shards: every device fetches what its windows reach of its neighbours; running sums go on from the
// totals of the shards before.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/build/builder.h"
#include "sharding/partition/op_family.h"
#include "sharding/partition/ops/window_halo.h"
#include "sharding/partition/partitioner.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// What the reducer leaves as it is, where it is known: windows may then reach into what is nobody's.
std::optional<hlo::Opcode> Reducer(const Instruction& instruction) {
  if (!instruction.shape().is_array()) return std::nullopt;
  const std::optional<hlo::Opcode> reducer = hlo::ReducerOpcode(*instruction.called()[0]);
  return reducer && HasIdentity(*reducer, instruction.operand(0)->shape().type()) ? reducer : std::nullopt;
}

// A cumulative sum or the like: every window holds all up to its position, or from there on.
bool IsRunning(const Instruction& instruction, size_t d) {
  const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
  const int64_t size = instruction.operand(0)->shape().dims()[d];
  const bool plain = window.stride == 1 && window.base_dilation == 1 && window.window_dilation == 1;
  const bool all = window.size == size && window.padding_low + window.padding_high == size - 1 &&
                   (window.padding_low == 0 || window.padding_high == 0);
  return plain && all && size > 1 && Reducer(instruction).has_value();
}

struct SplitDim {
  int64_t dim = 0;
  WindowNeed need;
};

std::vector<SplitDim> SplitDims(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  const Dims& dims = instruction.operand(0)->shape().dims();
  const hlo::Shape& result = instruction.shape().is_array() ? instruction.shape() : instruction.shape().tuple()[0];
  std::vector<SplitDim> split;
  for (size_t d = 0; d < dims.size(); ++d) {
    const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
    const int64_t shards = ShardCount(AxesOf(assignment, rule.operands[0][d]));
    if (shards == 1 || window == hlo::WindowDimension{} || IsRunning(instruction, d)) continue;
    const int64_t windows = ShardSize(result.dims()[d], shards);
    split.push_back({static_cast<int64_t>(d), NeedOf(dims[d], ShardSize(dims[d], shards),
                                                     WindowStarts(window, windows, shards),
                                                     WindowSpan(window, windows), window.base_dilation)});
  }
  return split;
}

// The split dimensions along which totals of other shards are added (or whatever the reducer does).
std::vector<Along> RunningDims(const LocalOp& op) {
  std::vector<Along> dims;
  for (size_t d = 0; d < op.operands[0].sharding.dims.size(); ++d) {
    const AxisList& axes = op.operands[0].sharding.dims[d].axes;
    if (!axes.empty() && IsRunning(*op.source, d)) dims.push_back({static_cast<int64_t>(d), axes});
  }
  return dims;
}

// `x`, the running sums of a shard, with the totals of the shards before it (behind it, where sums run backwards).
Instruction* AddTotals(Emitter& emitter, const LocalOp& op, const Along& along, Instruction* x) {
  hlo::Builder& builder = emitter.builder();
  const size_t d = along.dim;
  const hlo::Opcode reducer = *Reducer(*op.source);
  const bool forward = (*op.source->attributes().window)[d].padding_high == 0;
  Dims begin(x->shape().dims().size(), 0), end = x->shape().dims(), kept;
  begin[d] = forward ? end[d] - 1 : 0;
  end[d] = begin[d] + 1;
  Instruction* totals = emitter.GatherParts(op.operands[0], builder.Slice(x, begin, end), along.dim, along.axes,
                                            {op.source, absl::StrCat("the running result over dimension ", d,
                                                                     " goes on from those of other shards")});
  builder.set_template(op.source);
  const hlo::Shape& all = totals->shape();
  const hlo::Shape index(tensor::ElementType::kS32, {all.dims()[d]});
  Instruction* counts = builder.Compare(forward ? hlo::Comparison::kLt : hlo::Comparison::kGt, builder.Iota(index, 0),
                                        builder.Full(index, emitter.Position(along.axes)));
  Instruction* identity = IdentityOf(emitter, reducer, x->shape().type());
  totals = builder.Select(builder.Broadcast(counts, all.dims(), {along.dim}), totals, builder.Full(all, identity));
  hlo::Computation* combine = hlo::ScalarReducer(emitter.program().module, reducer, x->shape().type());
  Instruction* before = builder.Reduce(totals, identity, {along.dim}, combine);
  for (int64_t i = 0; i < x->shape().ndim(); ++i) {
    if (i != along.dim) kept.push_back(i);
  }
  before = builder.Broadcast(before, x->shape().dims(), kept);
  return forward ? builder.Binary(reducer, before, x) : builder.Binary(reducer, x, before);
}

// Whether all that a real window holds is real.
bool IsDense(const hlo::WindowDimension& window) {
  return window.padding_low <= 0 && window.padding_high <= 0 && window.base_dilation == 1;
}

}  // namespace

std::vector<bool> SplitReduceWindow(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const Dims& dims = instruction.operand(0)->shape().dims();
  const bool known = Reducer(instruction).has_value();
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
  for (const SplitDim& split : SplitDims(instruction, rule, assignment)) {
    for (size_t i = 0; i < static_cast<size_t>(instruction.operand_count()) / 2; ++i) {
      halos.push_back({i, split.dim, split.need.need});
    }
  }
  return halos;
}

absl::Status EmitReduceWindow(Emitter& emitter, LocalOp& op) {
  hlo::Window window = *op.source->attributes().window;
  const std::optional<hlo::Opcode> reducer = Reducer(*op.source);
  std::vector<LocalArray> arrays = op.operands;
  for (const SplitDim& split : SplitDims(*op.source, *op.rule, *op.assignment)) {
    const hlo::WindowDimension whole = window[split.dim];
    const std::string what = absl::StrCat("windows over dimension ", split.dim, " (size ", whole.size, ", stride ",
                                          whole.stride, ") reach into other shards");
    for (size_t i = 0; i < arrays.size() / 2; ++i) {
      Instruction* fill = reducer ? IdentityOf(emitter, *reducer, arrays[i].global.type) : nullptr;
      arrays[i].local = FetchWindow(emitter, {arrays[i], split.dim, fill, {op.source, what}}, split.need,
                                    &window[split.dim]);
    }
  }
  const std::vector<Along> running = RunningDims(op);
  for (const Along& along : running) {
    hlo::WindowDimension& local = window[along.dim];
    local.size = arrays[0].local->shape().dims()[along.dim];
    (local.padding_high == 0 ? local.padding_low : local.padding_high) = local.size - 1;
    Instruction* identity = IdentityOf(emitter, *reducer, arrays[0].global.type);
    arrays[0].local = emitter.MaskPadding(arrays[0], {along.dim}, identity);
  }
  emitter.builder().set_template(op.source);
  Instruction* local = emitter.CloneLocal(*op.source, LocalResultShape(op), Locals(arrays));
  local->mutable_attributes().window = std::move(window);
  for (const Along& along : running) local = AddTotals(emitter, op, along, local);
  SetResults(emitter, op, local);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
