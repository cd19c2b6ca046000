#include "sharding/partition/assignment.h"

#include <algorithm>
#include <numeric>

#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

int64_t FactorSize(const OpRule& rule, int f) { return rule.factors[f].size; }

// Distributes the axes of a dimension among its factors, major to minor. An axis that is larger than the rest of a
// factor is cut in two.
class DimensionReader {
 public:
  DimensionReader(const OpRule& rule, const DimensionFactors& factors, Assignment* result)
      : rule_(rule), factors_(factors), result_(*result) {
    Skip();
    single_ = true;
    for (size_t i = 0; i < factors.size(); ++i) single_ &= i == at_ || FactorSize(rule, factors[i]) == 1;
  }

  // Returns false if the axis does not fit. Later axes cannot be distributed either in this case.
  bool Read(AxisRef axis, const OriginPtr& origin) {
    while (axis.size > 1) {
      if (at_ >= factors_.size()) return false;
      if (single_ || left_ % axis.size == 0) {
        Assign(axis, origin);
        left_ = single_ ? left_ : left_ / axis.size;
        if (left_ == 1 && !single_) Next();
        return true;
      }
      if (axis.size % left_ != 0) return false;
      const AxisRef part{axis.axis, axis.pre, left_};
      Assign(part, origin);
      axis = {axis.axis, axis.pre * left_, axis.size / left_};
      Next();
    }
    return true;
  }

 private:
  void Assign(const AxisRef& axis, const OriginPtr& origin) {
    FactorAxes& factor = result_[factors_[at_]];
    factor.axes.push_back(axis);
    factor.origins.push_back(origin);
  }
  void Skip() {
    while (at_ + 1 < factors_.size() && FactorSize(rule_, factors_[at_]) == 1) ++at_;
    left_ = at_ < factors_.size() ? FactorSize(rule_, factors_[at_]) : 1;
  }
  void Next() {
    ++at_;
    Skip();
    if (at_ < factors_.size() && left_ == 1) at_ = factors_.size();
  }

  const OpRule& rule_;
  const DimensionFactors& factors_;
  Assignment& result_;
  size_t at_ = 0;        // The index in factors_ of the factor that takes the next axis.
  int64_t left_ = 1;     // The size of that factor divided by the sizes of the axes that already split it.
  // Whether at most one factor has a size above 1. That factor takes every axis, even one that does not divide it.
  bool single_ = false;
};

Assignment Read(const OpRule& rule, const OpTensor& tensor, const std::vector<bool>& allowed) {
  Assignment result(rule.factors.size());
  for (size_t d = 0; d < tensor.factors->size() && d < tensor.sharding->dims.size(); ++d) {
    const DimensionSharding& dim = tensor.sharding->dims[d];
    DimensionReader reader(rule, (*tensor.factors)[d], &result);
    for (size_t i = 0; i < dim.axes.size(); ++i) {
      if (!reader.Read(dim.axes[i], i < dim.origins.size() ? dim.origins[i] : nullptr)) break;
    }
  }
  for (size_t f = 0; f < result.size(); ++f) {
    if (!allowed[f]) result[f] = {};
  }
  return result;
}

// Reads a tensor's axes, and moves each axis of a factor that must stay unsplit to the largest splittable factor that
// it divides. The op then needs an all-to-all of the tensor instead of an all-gather. A sort of f32[1024,65536] along
// dimension 1, sharded [{}, {"a"}], runs on [{"a"}, {}].
Assignment ReadExchanged(const OpRule& rule, const OpTensor& tensor, const std::vector<bool>& allowed) {
  const Assignment read = Read(rule, tensor, std::vector<bool>(allowed.size(), true));
  Assignment result = Read(rule, tensor, allowed);
  for (size_t f = 0; f < read.size(); ++f) {
    if (allowed[f]) continue;
    for (size_t i = 0; i < read[f].axes.size(); ++i) {
      int64_t largest = 0;
      FactorAxes* to = nullptr;
      for (size_t g = 0; g < result.size(); ++g) {
        const int64_t shards = ShardCount(result[g].axes), rest = FactorSize(rule, g) / shards;
        const bool fits = allowed[g] && rule.factors[g].kind == FactorKind::kPassThrough &&
                          FactorSize(rule, g) % (shards * read[f].axes[i].size) == 0;
        if (!fits || rest <= largest) continue;
        largest = rest;
        to = &result[g];
      }
      if (to == nullptr) continue;
      to->axes.push_back(read[f].axes[i]);
      to->origins.push_back(read[f].origins[i]);
    }
  }
  return result;
}

// Extends every factor of `base` whose axes are a prefix of the factor's axes in `more` by the remaining axes. An axis
// that is already in use ends the extension, or is skipped if `skip_used`.
void Merge(const Assignment& more, bool skip_used, Assignment* base) {
  for (size_t f = 0; f < base->size(); ++f) {
    FactorAxes& have = (*base)[f];
    const FactorAxes& from = more[f];
    if (from.axes.size() <= have.axes.size() || !std::equal(have.axes.begin(), have.axes.end(), from.axes.begin())) {
      continue;
    }
    for (size_t i = have.axes.size(); i < from.axes.size(); ++i) {
      const bool used = std::any_of(base->begin(), base->end(), [&](const FactorAxes& factor) {
        return OverlapsAny(from.axes[i], factor.axes);
      });
      if (used && skip_used) continue;
      if (used) break;
      have.axes.push_back(from.axes[i]);
      have.origins.push_back(from.origins[i]);
    }
  }
}

void Trim(FactorAxes* factor, size_t count) {
  factor->axes.resize(count);
  factor->origins.resize(count);
}

// In dimensions with several factors of a size above 1, removes the axes that do not divide their factor. Also removes
// the axes of every factor that is minor to an incompletely split factor. If only one factor of a dimension has a size
// above 1, its axes stay. Repeats this until nothing changes, because a factor occurs in several tensors.
void MakeLegal(const OpRule& rule, const std::vector<OpTensor>& tensors, Assignment* assignment) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const OpTensor& tensor : tensors) {
      for (const DimensionFactors& factors : *tensor.factors) {
        if (factors.size() < 2) continue;
        const int64_t real =
            std::count_if(factors.begin(), factors.end(), [&](int f) { return FactorSize(rule, f) > 1; });
        bool majors_split = true;
        for (int f : factors) {
          if (real < 2 && FactorSize(rule, f) > 1) continue;
          FactorAxes& factor = (*assignment)[f];
          size_t keep = 0;
          int64_t shards = 1;
          while (majors_split && keep < factor.axes.size() &&
                 FactorSize(rule, f) % (shards * factor.axes[keep].size) == 0) {
            shards *= factor.axes[keep++].size;
          }
          if (keep < factor.axes.size()) {
            Trim(&factor, keep);
            changed = true;
          }
          majors_split &= shards == FactorSize(rule, f);
        }
      }
    }
  }
}

bool SameAxes(const Assignment& a, const Assignment& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const FactorAxes& x, const FactorAxes& y) { return x.axes == y.axes; });
}

}  // namespace

TensorSharding Project(const Assignment& assignment, const TensorFactors& factors) {
  TensorSharding result = TensorSharding::Replicated(std::ssize(factors));
  for (size_t d = 0; d < factors.size(); ++d) {
    for (int f : factors[d]) {
      const FactorAxes& factor = assignment[f];
      for (size_t i = 0; i < factor.axes.size(); ++i) {
        DimensionSharding& dim = result.dims[d];
        const AxisRef& axis = factor.axes[i];
        const bool joins = !dim.axes.empty() && dim.axes.back().axis == axis.axis &&
                           dim.axes.back().pre * dim.axes.back().size == axis.pre;
        if (joins) {
          dim.axes.back().size *= axis.size;
        } else {
          dim.axes.push_back(axis);
          dim.origins.push_back(factor.origins[i]);
        }
      }
    }
  }
  return result;
}

bool SplitsFactors(const Assignment& assignment, const AxisRef& axis) {
  return std::any_of(assignment.begin(), assignment.end(),
                     [&](const FactorAxes& factor) { return OverlapsAny(axis, factor.axes); });
}

AxisList ReducedAxes(const OpRule& rule, const Assignment& assignment) {
  AxisList axes;
  for (size_t f = 0; f < assignment.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction) continue;
    axes.insert(axes.end(), assignment[f].axes.begin(), assignment[f].axes.end());
  }
  std::sort(axes.begin(), axes.end());
  return Merged(axes);
}

std::vector<Assignment> Candidates(const OpRule& rule, const std::vector<OpTensor>& tensors,
                                   const std::vector<bool>& allowed, bool thorough) {
  std::vector<Assignment> own;
  for (const OpTensor& tensor : tensors) own.push_back(Read(rule, tensor, allowed));
  std::vector<size_t> by_size(tensors.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return tensors[a].bytes > tensors[b].bytes; });
  std::vector<Assignment> candidates;
  const auto add = [&](Assignment candidate) {
    MakeLegal(rule, tensors, &candidate);
    const bool known = std::any_of(candidates.begin(), candidates.end(),
                                   [&](const Assignment& have) { return SameAxes(have, candidate); });
    if (!known) candidates.push_back(std::move(candidate));
  };
  // In the first candidates, each tensor in turn has precedence over the others, which follow by decreasing size. The
  // next candidates use the axes of one tensor only.
  for (const bool skip_used : {false, true}) {
    if (skip_used && !thorough) continue;
    for (size_t first = tensors.size(); first-- > 0;) {
      Assignment candidate = own[first];
      for (size_t next : by_size) Merge(own[next], skip_used, &candidate);
      add(std::move(candidate));
    }
  }
  for (size_t first = tensors.size(); first-- > 0;) add(own[first]);
  for (const OpTensor& tensor : tensors) add(ReadExchanged(rule, tensor, allowed));
  add(Assignment(rule.factors.size()));
  return candidates;
}

}  // namespace xlad::sharding
