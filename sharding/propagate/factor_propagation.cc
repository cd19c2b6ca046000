// Propagation of factor shardings among the tensors of a node.
#include "sharding/propagate/factor_propagation.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "sharding/propagate/projection.h"

namespace xlad::sharding {
namespace {

// The axes that a factor could have in every tensor of the node.
struct Candidate {
  int factor = 0;
  AxisList axes;
  std::vector<OriginPtr> origins;  // Where they lie now; parallel to axes.
  size_t source = 0;               // A tensor that has them all.
  int64_t elements = 0;            // Of the largest such tensor.
};

// Whether a dimension that is part of a factor (a slice's result, a padded operand) may be split as the factor is:
// where it divides, and where it is as large as every second or third place of the factor, one of them missing (half of
// a scan's places).
bool KeepsPlaces(int64_t factor, int64_t size, int64_t shards) {
  if (size == factor || size % shards == 0) return true;
  const int64_t every = size == 0 ? 0 : factor / size;
  const auto shard = [shards](int64_t n) { return (n + shards - 1) / shards; };
  return every > 1 && factor / every <= size + 1 && shard(size) * every == shard(factor);
}

class Step {
 public:
  Step(const StepContext& context, const FlowNode& node, std::vector<FlowValue>* values)
      : context_(context), node_(node), values_(*values) {}

  std::vector<int> Run() {
    const bool any = std::any_of(node_.operands.begin(), node_.operands.end(), [&](int v) { return IsSplit(v); }) ||
                     std::any_of(node_.results.begin(), node_.results.end(), [&](int v) { return IsSplit(v); });
    if (!any) return {};
    for (size_t t = 0; t < tensors(); ++t) {
      projections_.push_back(Project(node_.rule, factors_of(t), *value(t).dims, value(t).sharding));
    }
    Spread();
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
  bool Takes(const Direction& direction, size_t t) const {
    if (!is_operand(t)) return direction.to_results;
    return direction.to_operands && context_.may_change_operand(node_, value(t));
  }

  // The longest list that some giving tensor has, cut where any tensor disagrees.
  Candidate Longest(int factor, const Direction& direction) const {
    Candidate best;
    best.factor = factor;
    size_t limit = SIZE_MAX;
    for (const bool giving : {true, false}) {
      for (size_t t = 0; t < tensors(); ++t) {
        if ((is_operand(t) ? direction.from_operands : direction.from_results) != giving) continue;
        const FactorSharding* own = projections_[t].Find(factor);
        if (own == nullptr || own->axes.empty()) continue;
        const ListComparison both = Compare(best.axes, own->axes);
        if (both.rest_a.empty() && !both.rest_b.empty() && giving && limit == SIZE_MAX) {
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

  // What tensor `t` can take of `rest`, behind the axes that the factor has there.
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
      } else if (shards * free.size > size || !KeepsPlaces(factor.size, size, shards * free.size)) {
        break;
      }
      if (free.size == 1) break;
      allowed.push_back(free);
      shards *= free.size;
      if (free.size != axis.size) break;
    }
    return allowed;
  }

  void Spread() {
    std::vector<Candidate> candidates;
    for (size_t f = 0; f < node_.rule.factors.size(); ++f) {
      Candidate candidate = Longest(static_cast<int>(f), DirectionOf(static_cast<int>(f)));
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
        if (Takes(DirectionOf(candidate.factor), t)) Extend(t, candidate);
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
      // A value that occurs twice is written once a visit: the next visit sees the result.
      if (std::find(changed.begin(), changed.end(), v) != changed.end()) continue;
      if (WriteBack(node_.rule, factors_of(t), projections_[t], &values_[v].sharding)) {
        changed.push_back(v);
      }
    }
    return changed;
  }

  const StepContext& context_;
  const FlowNode& node_;
  std::vector<FlowValue>& values_;
  std::vector<TensorProjection> projections_;
};

}  // namespace

std::vector<int> PropagateAt(const StepContext& context, const FlowNode& node, std::vector<FlowValue>* values) {
  return Step(context, node, values).Run();
}

}  // namespace xlad::sharding
