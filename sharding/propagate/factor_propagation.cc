#include "sharding/propagate/factor_propagation.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "sharding/model/axes.h"
#include "sharding/propagate/projection.h"

namespace xlad::sharding {
namespace {

// The axes that a factor could have in every tensor of the node.
struct Candidate {
  int factor = 0;
  AxisList axes;
  std::vector<OriginPtr> origins;  // The origins in the source tensor; parallel to axes.
  size_t source = 0;               // A tensor that has all of these axes.
  int64_t elements = 0;            // The size of the largest such tensor.
};

// Whether a dimension of `size` that is a part of a larger factor (a slice's result, a padded operand) may be split
// into as many shards as the factor. There are two cases. In the first, the shards divide the dimension evenly. In the
// second, the dimension has every second (third, ...) index of the factor, possibly without the last one, and the
// shards of both begin at the same indices. Associative scans take slices of the second kind.
bool CanSplitAsFactor(int64_t factor, int64_t size, int64_t shards) {
  if (size == factor || size % shards == 0) return true;
  const int64_t stride = size == 0 ? 0 : factor / size;
  return stride > 1 && factor / stride <= size + 1 && ShardSize(size, shards) * stride == ShardSize(factor, shards);
}

class NodePropagation {
 public:
  NodePropagation(const NodeContext& context, const FlowNode& node, std::vector<FlowValue>* values)
      : context_(context), node_(node), values_(*values) {}

  std::vector<int> Run() {
    const bool any = std::any_of(node_.operands.begin(), node_.operands.end(), [&](int v) { return IsSplit(v); }) ||
                     std::any_of(node_.results.begin(), node_.results.end(), [&](int v) { return IsSplit(v); });
    if (!any) return {};
    for (size_t t = 0; t < tensors(); ++t) {
      projections_.push_back(Project(node_.rule, factors_of(t), *value(t).dims, value(t).sharding));
    }
    ExtendFactors();
    return Write();
  }

 private:
  size_t tensors() const { return node_.operands.size() + node_.results.size(); }
  bool is_operand(size_t t) const { return t < node_.operands.size(); }
  int value_id(size_t t) const { return is_operand(t) ? node_.operands[t] : node_.results[t - node_.operands.size()]; }
  const FlowValue& value(size_t t) const { return values_[value_id(t)]; }
  const TensorFactors& factors_of(size_t t) const {
    return is_operand(t) ? node_.rule.operands[t] : node_.rule.results[t - node_.operands.size()];
  }
  bool IsSplit(int v) const {
    for (const DimensionSharding& dim : values_[v].sharding.dims) {
      if (!dim.axes.empty()) return true;
    }
    return false;
  }

  Direction DirectionOf(int factor) const {
    const Factor& of = node_.rule.factors[factor];
    return of.blocked ? Direction{} : context_.direction(node_, of);
  }
  bool MayChange(const Direction& direction, size_t t) const {
    if (!is_operand(t)) return direction.to_results;
    return direction.to_operands && context_.may_change_operand(node_, value(t));
  }

  // The longest list of axes that a source tensor has for the factor, up to the first axis that another tensor
  // contradicts.
  Candidate LongestCompatible(int factor, const Direction& direction) const {
    Candidate best;
    best.factor = factor;
    size_t limit = SIZE_MAX;
    for (const bool sources : {true, false}) {
      for (size_t t = 0; t < tensors(); ++t) {
        if ((is_operand(t) ? direction.from_operands : direction.from_results) != sources) continue;
        const FactorSharding* own = projections_[t].Find(factor);
        if (own == nullptr || own->axes.empty()) continue;
        const ListComparison both = Compare(best.axes, own->axes);
        if (both.rest_a.empty() && !both.rest_b.empty() && sources && limit == SIZE_MAX) {
          best.axes = own->axes;
          best.origins = own->origins;
          best.source = t;
        } else if (!both.rest_a.empty() && !both.rest_b.empty()) {
          best.axes = both.common;
          best.origins.resize(best.axes.size());
          limit = best.axes.size();
        }
      }
    }
    return best;
  }

  // The part of `rest` that tensor `t` can append to its axes of the factor.
  AxisList Allowed(size_t t, const FactorSharding& own, const AxisList& rest) const {
    AxisList allowed;
    if (own.closed) return allowed;
    const Factor& factor = node_.rule.factors[own.factor];
    const int64_t size = (*value(t).dims)[own.dim];
    int64_t shards = ShardCount(own.axes);
    for (const AxisRef& axis : rest) {
      AxisRef free = projections_[t].Free(axis, own.factor);
      if (own.divides) {
        const int64_t left = factor.size / shards;
        if (left > 1 && free.size > left && free.size % left == 0) free.size = left;
        if (left % free.size != 0) break;
      } else if (shards * free.size > size || !CanSplitAsFactor(factor.size, size, shards * free.size)) {
        break;
      }
      if (free.size == 1) break;
      allowed.push_back(free);
      shards *= free.size;
      if (free.size != axis.size) break;
    }
    return allowed;
  }

  void ExtendFactors() {
    std::vector<Candidate> candidates;
    for (int f = 0; f < std::ssize(node_.rule.factors); ++f) {
      Candidate candidate = LongestCompatible(f, DirectionOf(f));
      if (candidate.axes.empty()) continue;
      for (size_t t = 0; t < tensors(); ++t) {
        const FactorSharding* own = projections_[t].Find(candidate.factor);
        if (own == nullptr || !Compare(candidate.axes, own->axes).rest_a.empty()) continue;
        candidate.elements = std::max(candidate.elements, tensor::Product(*value(t).dims));
      }
      candidates.push_back(std::move(candidate));
    }
    std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
      return std::make_tuple(-a.elements, -ShardCount(a.axes), a.source, a.factor) <
             std::make_tuple(-b.elements, -ShardCount(b.axes), b.source, b.factor);
    });
    for (size_t t = 0; t < tensors(); ++t) {
      for (const Candidate& candidate : candidates) {
        if (MayChange(DirectionOf(candidate.factor), t)) Extend(t, candidate);
      }
    }
  }

  void Extend(size_t t, const Candidate& candidate) {
    FactorSharding* own = projections_[t].Find(candidate.factor);
    if (own == nullptr) return;
    const ListComparison both = Compare(own->axes, candidate.axes);
    if (!both.rest_a.empty() || both.rest_b.empty()) return;
    const AxisList allowed = Allowed(t, *own, both.rest_b);
    for (size_t i = 0; i < allowed.size(); ++i) {
      own->axes.push_back(allowed[i]);
      own->origins.push_back(Link(candidate, candidate.origins[both.whole_b + i]));
      own->changed = true;
    }
  }

  OriginPtr Link(const Candidate& candidate, const OriginPtr& because) const {
    const std::string from = is_operand(candidate.source)
                                 ? absl::StrCat("operand ", candidate.source)
                                 : absl::StrCat("result ", candidate.source - node_.operands.size());
    return std::make_shared<const Origin>(
        Origin{Origin::Kind::kPropagated, node_.instruction->name(),
               absl::StrCat("factor ", FactorName(candidate.factor), " of ", node_.what, ", from ", from),
               context_.module->SourceOf(*node_.instruction), because});
  }

  std::vector<int> Write() {
    std::vector<int> changed;
    for (size_t t = 0; t < tensors(); ++t) {
      const int v = value_id(t);
      // A value that occurs several times in the node is written once. The next visit of the node uses the result.
      if (Contains(changed, v)) continue;
      if (WriteBack(node_.rule, factors_of(t), projections_[t], &values_[v].sharding)) {
        changed.push_back(v);
      }
    }
    return changed;
  }

  const NodeContext& context_;
  const FlowNode& node_;
  std::vector<FlowValue>& values_;
  std::vector<TensorProjection> projections_;
};

}  // namespace

std::vector<int> PropagateAt(const NodeContext& context, const FlowNode& node, std::vector<FlowValue>* values) {
  return NodePropagation(context, node, values).Run();
}

}  // namespace xlad::sharding
