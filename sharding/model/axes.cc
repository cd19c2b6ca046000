#include "sharding/model/axes.h"

#include <algorithm>

namespace xlad::sharding {

bool Overlap(const AxisRef& a, const AxisRef& b) {
  return a.axis == b.axis && std::max(a.pre, b.pre) < std::min(a.pre * a.size, b.pre * b.size);
}

bool OverlapsAny(const AxisRef& a, const AxisList& list) {
  return std::any_of(list.begin(), list.end(), [&](const AxisRef& b) { return Overlap(a, b); });
}

AxisList Merged(const AxisList& axes) {
  AxisList merged;
  for (const AxisRef& axis : axes) {
    if (axis.size == 1) continue;
    if (!merged.empty() && merged.back().axis == axis.axis && merged.back().pre * merged.back().size == axis.pre) {
      merged.back().size *= axis.size;
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

AxisList RestOf(const Mesh& mesh, const AxisList& list) {
  AxisCuts cuts;
  cuts.Add(list);
  AxisList whole;
  for (int axis = 0; axis < std::ssize(mesh.axes()); ++axis) whole.push_back(mesh.Whole(axis));
  cuts.Add(whole);
  XLAD_CHECK(cuts.Resolve(mesh)) << "axes whose cuts do not nest";
  AxisList rest;
  for (const AxisRef& part : cuts.Cut(whole)) {
    if (!OverlapsAny(part, list)) rest.push_back(part);
  }
  return rest;
}

Placement PlacementOf(const TensorSharding& sharding) {
  Placement placement;
  for (const DimensionSharding& dim : sharding.dims) placement.push_back(dim.axes);
  return placement;
}

void AxisCuts::Add(const AxisList& axes) { seen_.insert(seen_.end(), axes.begin(), axes.end()); }

void AxisCuts::Add(const Placement& placement) {
  for (const AxisList& axes : placement) Add(axes);
}

bool AxisCuts::Resolve(const Mesh& mesh) {
  cuts_.assign(mesh.axes().size(), {});
  for (const AxisRef& ref : seen_) {
    auto& cuts = cuts_[ref.axis];
    cuts.push_back(ref.pre);
    cuts.push_back(ref.pre * ref.size);
  }
  for (auto& cuts : cuts_) {
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] % cuts[i - 1] != 0) return false;
    }
  }
  return true;
}

AxisList AxisCuts::Cut(const AxisList& axes) const {
  AxisList result;
  for (const AxisRef& ref : axes) {
    int64_t at = ref.pre;
    for (int64_t cut : cuts_[ref.axis]) {
      if (cut <= at || cut > ref.pre * ref.size) continue;
      result.push_back({ref.axis, at, cut / at});
      at = cut;
    }
  }
  return result;
}

Placement AxisCuts::Cut(const Placement& placement) const {
  Placement result;
  for (const AxisList& axes : placement) result.push_back(Cut(axes));
  return result;
}

int64_t ShardSize(int64_t size, int64_t shards) { return (size + shards - 1) / shards; }

}  // namespace xlad::sharding
