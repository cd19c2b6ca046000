#include "sharding/partition/reshard_plan.h"

#include <algorithm>

#include "base/containers.h"
#include "sharding/cost/cost.h"
#include "sharding/partition/deferred_reductions.h"

namespace xlad::sharding {
namespace {

using Kind = ReshardStep::Kind;

// The choices in which the candidate plans differ: whether a dimension is sliced before its major axes are in place,
// and whether a permute leads directly to the target.
struct Style {
  bool slice_out_of_order = false;
  bool direct_permute = false;
};

// Builds one plan.
class Planner {
 public:
  Planner(const tensor::Shape& shape, DimensionAxes from, DimensionAxes to, AxisList reduce)
      : shape_(shape), state_(std::move(from)), target_(std::move(to)), reduce_(std::move(reduce)) {}

  // Returns nullopt if a step is impossible for these sizes.
  std::optional<ReshardPlan> Run(Style style);
  // All-gathers every dimension whose axes differ from the target's, over all of its axes, and then slices it. This is
  // always possible.
  ReshardPlan GatherAndSlice();

 private:
  size_t ndim() const { return state_.size(); }
  int64_t Local(const AxisList& axes, size_t d) const { return ShardSize(shape_.dims[d], ShardCount(axes)); }
  double LocalBytes(const DimensionAxes& dims) const;
  // Whether a shard of `coarse` consists of complete shards of `fine`, which extends `coarse`.
  bool Nests(size_t d, const AxisList& coarse, const AxisList& fine) const {
    return coarse.empty() || Local(coarse, d) == Local(fine, d) * (ShardCount(fine) / ShardCount(coarse));
  }
  bool Used(const AxisRef& axis) const;
  bool IsPrefixOfTarget(size_t d) const;

  void Push(ReshardStep step);
  void SliceAndScatter(bool out_of_order);
  bool ExtendAny(bool out_of_order, Kind kind);
  bool TryExtend(size_t d, bool out_of_order, Kind kind);
  void Reduce();
  bool MoveOne();
  bool TryMove(size_t i);
  bool PermuteTo(DimensionAxes arrangement);
  DimensionAxes Arranged(bool movers_last) const;
  bool HasMovers() const;
  bool Gather();
  bool SliceRest();

  const tensor::Shape& shape_;
  DimensionAxes state_;
  DimensionAxes target_;
  AxisList reduce_;
  ReshardPlan plan_;
};

double Planner::LocalBytes(const DimensionAxes& dims) const {
  double bytes = tensor::ByteWidth(shape_.type);
  for (size_t d = 0; d < ndim(); ++d) bytes *= Local(dims[d], d);
  return bytes;
}

bool Planner::Used(const AxisRef& axis) const {
  if (OverlapsAny(axis, reduce_)) return true;
  return std::any_of(state_.begin(), state_.end(), [&](const AxisList& axes) { return OverlapsAny(axis, axes); });
}

bool Planner::IsPrefixOfTarget(size_t d) const {
  return state_[d].size() <= target_[d].size() && std::equal(state_[d].begin(), state_[d].end(), target_[d].begin());
}

void Planner::Push(ReshardStep step) {
  step.before = state_;
  const int64_t n = ShardCount(step.axes);
  const double before = LocalBytes(step.before), after = LocalBytes(step.after);
  switch (step.kind) {
    case Kind::kSlice: step.bytes = 0; break;
    case Kind::kAllReduce: step.bytes = CommunicationBytes(hlo::Opcode::kAllReduce, before, n); break;
    case Kind::kReduceScatter:
      step.bytes = CommunicationBytes(hlo::Opcode::kReduceScatter, static_cast<double>(n) * after, n);
      break;
    case Kind::kAllToAll: step.bytes = CommunicationBytes(hlo::Opcode::kAllToAll, before, n); break;
    case Kind::kPermute: step.bytes = CommunicationBytes(hlo::Opcode::kCollectivePermute, before, n); break;
    case Kind::kAllGather:
      step.bytes = CommunicationBytes(hlo::Opcode::kAllGather, static_cast<double>(n) * before, n);
      break;
  }
  plan_.bytes += step.bytes;
  state_ = step.after;
  step.axes = Merged(step.axes);
  plan_.steps.push_back(std::move(step));
}

// Splits dimension d over the next axes of the target: by a slice if they are unused, by a reduce-scatter if they are
// unreduced. Adds at most one step.
bool Planner::TryExtend(size_t d, bool out_of_order, Kind kind) {
  const bool prefix = IsPrefixOfTarget(d);
  if (!prefix && !out_of_order) return false;
  AxisList slice, scatter;
  AxisList grown = state_[d];
  for (size_t k = prefix ? state_[d].size() : 0; k < target_[d].size(); ++k) {
    const AxisRef& axis = target_[d][k];
    const bool partial = Contains(reduce_, axis);
    const bool free = !partial && !Used(axis);
    if ((!free && !partial) || (partial && !slice.empty()) || (free && !scatter.empty())) {
      if (out_of_order && slice.empty() && scatter.empty()) continue;
      break;
    }
    grown.push_back(axis);
    if (!Nests(d, state_[d], grown)) {
      break;  // If the shards of some axes do not nest, those of more axes do not nest either.
    }
    (partial ? scatter : slice).push_back(axis);
  }
  if ((kind == Kind::kSlice ? slice : scatter).empty()) return false;
  ReshardStep step;
  step.kind = kind;
  step.dim = d;
  step.axes = slice.empty() ? scatter : slice;
  step.after = state_;
  step.after[d].insert(step.after[d].end(), step.axes.begin(), step.axes.end());
  for (const AxisRef& axis : scatter) std::erase(reduce_, axis);
  Push(std::move(step));
  return true;
}

bool Planner::ExtendAny(bool out_of_order, Kind kind) {
  for (size_t d = 0; d < ndim(); ++d) {
    if (TryExtend(d, out_of_order, kind)) return true;
  }
  return false;
}

// Takes all possible slices before each reduce-scatter, which then sends less.
void Planner::SliceAndScatter(bool out_of_order) {
  while (ExtendAny(out_of_order, Kind::kSlice) || ExtendAny(out_of_order, Kind::kReduceScatter)) {
  }
}

void Planner::Reduce() {
  if (reduce_.empty()) return;
  ReshardStep step;
  step.kind = Kind::kAllReduce;
  step.axes = reduce_;
  std::sort(step.axes.begin(), step.axes.end());
  step.after = state_;
  reduce_.clear();
  Push(std::move(step));
}

// Looks for another dimension that gets a suffix of dimension i's axes in the target, and moves the longest such suffix
// to it.
bool Planner::TryMove(size_t i) {
  for (size_t j = 0; j < ndim(); ++j) {
    if (i == j) continue;
    size_t start = state_[i].size();
    while (start > 0 && std::find(target_[j].begin(), target_[j].end(), state_[i][start - 1]) != target_[j].end()) {
      --start;
    }
    if (start == state_[i].size()) continue;
    ReshardStep step;
    step.kind = Kind::kAllToAll;
    step.dim = j;
    step.from_dim = i;
    step.axes.assign(state_[i].begin() + start, state_[i].end());
    step.after = state_;
    step.after[i].resize(start);
    step.after[j].insert(step.after[j].end(), step.axes.begin(), step.axes.end());
    if (!Nests(i, step.after[i], state_[i]) || !Nests(j, state_[j], step.after[j])) continue;
    Push(std::move(step));
    return true;
  }
  return false;
}

bool Planner::MoveOne() {
  for (size_t i = 0; i < ndim(); ++i) {
    if (TryMove(i)) return true;
  }
  return false;
}

bool Planner::HasMovers() const {
  for (size_t i = 0; i < ndim(); ++i) {
    for (const AxisRef& axis : state_[i]) {
      for (size_t j = 0; j < ndim(); ++j) {
        if (i != j && std::find(target_[j].begin(), target_[j].end(), axis) != target_[j].end()) return true;
      }
    }
  }
  return false;
}

// The axes of every dimension in this order: first the axes that stay, in target order, then the axes that are
// gathered, and last the axes that move to another dimension. If `movers_last` is false, the last two groups are
// swapped.
DimensionAxes Planner::Arranged(bool movers_last) const {
  DimensionAxes result(ndim());
  for (size_t i = 0; i < ndim(); ++i) {
    AxisList movers, extras;
    for (const AxisRef& axis : target_[i]) {
      if (std::find(state_[i].begin(), state_[i].end(), axis) != state_[i].end()) result[i].push_back(axis);
    }
    for (const AxisRef& axis : state_[i]) {
      if (std::find(target_[i].begin(), target_[i].end(), axis) != target_[i].end()) continue;
      bool moves = false;
      for (size_t j = 0; j < ndim(); ++j) {
        moves |= std::find(target_[j].begin(), target_[j].end(), axis) != target_[j].end();
      }
      (moves ? movers : extras).push_back(axis);
    }
    if (!movers_last) std::swap(movers, extras);
    result[i].insert(result[i].end(), extras.begin(), extras.end());
    result[i].insert(result[i].end(), movers.begin(), movers.end());
  }
  return result;
}

bool Planner::PermuteTo(DimensionAxes arrangement) {
  if (arrangement == state_) return false;
  for (size_t d = 0; d < ndim(); ++d) {
    if (ShardCount(arrangement[d]) != ShardCount(state_[d])) return false;
  }
  ReshardStep step;
  step.kind = Kind::kPermute;
  step.after = std::move(arrangement);
  Push(std::move(step));
  return true;
}

bool Planner::Gather() {
  for (size_t d = 0; d < ndim(); ++d) {
    size_t common = 0;
    while (common < state_[d].size() && common < target_[d].size() && state_[d][common] == target_[d][common]) {
      ++common;
    }
    if (common == state_[d].size()) continue;
    ReshardStep step;
    step.kind = Kind::kAllGather;
    step.dim = d;
    step.after = state_;
    step.after[d].resize(common);
    if (!Nests(d, step.after[d], state_[d])) return false;
    step.axes.assign(state_[d].begin() + common, state_[d].end());
    Push(std::move(step));
  }
  return true;
}

bool Planner::SliceRest() {
  SliceAndScatter(false);
  return state_ == target_ && reduce_.empty();
}

std::optional<ReshardPlan> Planner::Run(Style style) {
  SliceAndScatter(style.slice_out_of_order);
  Reduce();
  SliceAndScatter(style.slice_out_of_order);
  if (style.direct_permute) {
    if (state_ != target_ && !PermuteTo(target_)) return std::nullopt;
    return SliceRest() ? std::optional(std::move(plan_)) : std::nullopt;
  }
  while (MoveOne()) {
  }
  if (HasMovers()) {
    PermuteTo(Arranged(true));
    while (MoveOne()) {
    }
    if (HasMovers()) return std::nullopt;
  }
  PermuteTo(Arranged(false));
  if (!Gather() || !SliceRest()) return std::nullopt;
  return std::move(plan_);
}

ReshardPlan Planner::GatherAndSlice() {
  Reduce();
  for (size_t d = 0; d < ndim(); ++d) {
    if (state_[d].empty() || state_[d] == target_[d]) continue;
    ReshardStep step;
    step.kind = Kind::kAllGather;
    step.dim = d;
    step.axes = state_[d];
    step.after = state_;
    step.after[d].clear();
    Push(std::move(step));
  }
  XLAD_CHECK(SliceRest()) << "a reshard by all-gathers and slices did not reach its target";
  return std::move(plan_);
}

// The plan for axes whose cuts do not nest. All dimensions are all-gathered along the axes of `from` and then sliced
// along the axes of `to`.
ReshardPlan PlanAcrossCuts(const tensor::Shape& shape, const TensorSharding& from, const TensorSharding& to,
                           const AxisList& reduce) {
  const DimensionAxes replicated(shape.dims.size());
  ReshardPlan first = Planner(shape, DimensionAxesOf(from), replicated, reduce).GatherAndSlice();
  ReshardPlan second = Planner(shape, replicated, DimensionAxesOf(to), {}).GatherAndSlice();
  first.steps.insert(first.steps.end(), second.steps.begin(), second.steps.end());
  first.bytes += second.bytes;
  return first;
}

}  // namespace

ReshardPlan PlanReshard(const Mesh& mesh, const tensor::Shape& shape, const TensorSharding& from,
                        const TensorSharding& to) {
  if (from == to) return {};
  AxisList reduce = Without(mesh, from.unreduced, to.unreduced);
  AxisCuts cuts;
  cuts.Add(DimensionAxesOf(from));
  cuts.Add(DimensionAxesOf(to));
  cuts.Add(reduce);
  if (!cuts.Resolve(mesh)) return PlanAcrossCuts(shape, from, to, reduce);
  const DimensionAxes start = cuts.Cut(DimensionAxesOf(from)), end = cuts.Cut(DimensionAxesOf(to));
  reduce = cuts.Cut(reduce);

  ReshardPlan best = Planner(shape, start, end, reduce).GatherAndSlice();
  for (const Style style : {Style{false, false}, Style{true, false}, Style{false, true}}) {
    std::optional<ReshardPlan> plan = Planner(shape, start, end, reduce).Run(style);
    const bool better = plan && (plan->bytes < best.bytes ||
                                 (plan->bytes == best.bytes && plan->steps.size() < best.steps.size()));
    if (better) best = *std::move(plan);
  }
  return best;
}

}  // namespace xlad::sharding
