#include "sharding/propagate/projection.h"

#include <algorithm>

#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

// The major part of `axis` that ends where `other` begins; all of `axis` if the two do not overlap.
AxisRef PrefixBefore(const AxisRef& axis, const AxisRef& other) {
  if (!Overlap(axis, other)) return axis;
  if (other.pre <= axis.pre || other.pre % axis.pre != 0) return {axis.axis, axis.pre, 1};
  const int64_t size = other.pre / axis.pre;
  return {axis.axis, axis.pre, axis.size % size == 0 ? size : 1};
}

// Assigns the axes of one dimension to its factors, which are added from major to minor.
class AxisAssigner {
 public:
  AxisAssigner(const DimensionSharding& dim, const DimensionFactors& factors, TensorProjection* out)
      : dim_(dim), several_(factors.size() > 1), out_(*out) {}

  // Adds a factor of size `size` with the axes that it can express.
  void AddFactor(int factor, int d, int64_t size) {
    FactorSharding& to = out_.factors.emplace_back();
    to.factor = factor;
    to.dim = d;
    to.closed = dim_.closed;
    to.divides = several_;
    int64_t left = size;
    while (!stuck_ && next_ < dim_.axes.size() && (left > 1 || !several_)) {
      const AxisRef axis = Rest();
      if (several_ && left % axis.size != 0 && axis.size % left != 0) {
        stuck_ = true;
        break;
      }
      const int64_t taken = several_ ? std::min(left, axis.size) : axis.size;
      to.axes.push_back({axis.axis, axis.pre, taken});
      to.origins.push_back(next_ < dim_.origins.size() ? dim_.origins[next_] : nullptr);
      left = several_ ? left / taken : left;
      used_ *= taken;
      if (taken == axis.size) {
        ++next_;
        used_ = 1;
      }
    }
  }

  // If axes remain, they are marked as taken and the dimension's factors are closed.
  void Finish(size_t first_factor) {
    if (next_ >= dim_.axes.size()) return;
    for (; next_ < dim_.axes.size(); ++next_, used_ = 1) out_.taken.push_back(Rest());
    for (size_t f = first_factor; f < out_.factors.size(); ++f) out_.factors[f].closed = true;
  }

 private:
  // The part of the next axis that no factor has yet.
  AxisRef Rest() const {
    const AxisRef& axis = dim_.axes[next_];
    return {axis.axis, axis.pre * used_, axis.size / used_};
  }

  const DimensionSharding& dim_;
  const bool several_;
  TensorProjection& out_;
  size_t next_ = 0;     // The next axis of dim_.
  int64_t used_ = 1;    // The size of the major part of that axis that factors have.
  bool stuck_ = false;  // A factor could not express the next axis; later factors get none.
};

}  // namespace

FactorSharding* TensorProjection::Find(int factor) {
  for (FactorSharding& sharding : factors) {
    if (sharding.factor == factor) return &sharding;
  }
  return nullptr;
}

AxisRef TensorProjection::Free(const AxisRef& axis, int factor) const {
  AxisRef free = axis;
  for (const AxisRef& other : taken) free = PrefixBefore(free, other);
  for (const FactorSharding& sharding : factors) {
    if (sharding.factor == factor) continue;
    for (const AxisRef& other : sharding.axes) free = PrefixBefore(free, other);
  }
  return free;
}

TensorProjection Project(const OpRule& rule, const TensorFactors& tensor, const Dims& dims,
                         const TensorSharding& sharding) {
  TensorProjection projection;
  projection.factors.reserve(tensor.size());
  projection.taken = sharding.replicated;
  projection.taken.insert(projection.taken.end(), sharding.unreduced.begin(), sharding.unreduced.end());
  for (int d = 0; d < std::ssize(tensor); ++d) {
    const size_t first = projection.factors.size();
    AxisAssigner assigner(sharding.dims[d], tensor[d], &projection);
    for (const int factor : tensor[d]) {
      const int64_t size = tensor[d].size() > 1 ? rule.factors[factor].size : dims[d];
      assigner.AddFactor(factor, d, size);
    }
    assigner.Finish(first);
  }
  return projection;
}

bool WriteBack(const OpRule& rule, const TensorFactors& tensor, const TensorProjection& projection,
               TensorSharding* sharding) {
  bool changed = false;
  for (size_t d = 0; d < tensor.size(); ++d) {
    bool touched = false;
    for (const int factor : tensor[d]) touched = touched || projection.Find(factor)->changed;
    if (!touched) continue;
    AxisList axes;
    std::vector<OriginPtr> origins;
    for (const int factor : tensor[d]) {
      const FactorSharding& from = *projection.Find(factor);
      for (size_t i = 0; i < from.axes.size(); ++i) {
        if (!AppendAxis(from.axes[i], &axes)) origins.push_back(from.origins[i]);
      }
      // A factor may be split only if the more major ones are split into pieces of size 1.
      if (ShardCount(from.axes) != rule.factors[factor].size) break;
    }
    DimensionSharding& dim = sharding->dims[d];
    if (axes == dim.axes) continue;
    dim.axes = std::move(axes);
    dim.origins = std::move(origins);
    changed = true;
  }
  return changed;
}

ListComparison Compare(const AxisList& a, const AxisList& b) {
  ListComparison result;
  size_t i = 0, j = 0;
  AxisRef x, y;  // The remaining parts of a[i - 1] and b[j - 1], of size 1 if nothing remains.
  x.size = y.size = 1;
  while (true) {
    if (x.size == 1 && i < a.size()) x = a[i++];
    if (y.size == 1 && j < b.size()) y = b[j++];
    if (x.size <= 1 || y.size <= 1 || x.axis != y.axis || x.pre != y.pre) break;
    const int64_t size = std::min(x.size, y.size);
    if (x.size % size != 0 || y.size % size != 0) break;
    AppendAxis({x.axis, x.pre, size}, &result.common);
    x = {x.axis, x.pre * size, x.size / size};
    y = {y.axis, y.pre * size, y.size / size};
  }
  const auto rest = [](const AxisRef& left, const AxisList& list, size_t next, AxisList* out, size_t* whole) {
    *whole = left.size > 1 ? next - 1 : next;
    if (left.size > 1) out->push_back(left);
    out->insert(out->end(), list.begin() + next, list.end());
  };
  rest(x, a, i, &result.rest_a, &result.whole_a);
  rest(y, b, j, &result.rest_b, &result.whole_b);
  return result;
}

}  // namespace xlad::sharding
